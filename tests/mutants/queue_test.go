package mutants

// queueMutants are those of jobs that are lent one by one.
var queueMutants = []mutant{
	{
		rule:  "a settlement names the token of its lease",
		file:  "store/mongo/settle.go",
		from:  "		models[i] = heldUpdate(g.ids, g.token, s.settling(g))\n",
		to:    "		models[i] = mongo.NewUpdateManyModel().SetUpdate(bson.A{op(\"$set\", s.settling(g))}).SetFilter(bson.D{{Key: \"_id\", Value: op(\"$in\", g.ids)}, {Key: \"state\", Value: core.JobActive}})\n",
		suite: "./store/mongo", run: "TestTheQueueConforms/ReplicaSet/StaleHolder",
	},
	{
		rule:  "a settlement names the token, in the history of a whole queue",
		file:  "store/mongo/settle.go",
		from:  "		models[i] = heldUpdate(g.ids, g.token, s.settling(g))\n",
		to:    "		models[i] = mongo.NewUpdateManyModel().SetUpdate(bson.A{op(\"$set\", s.settling(g))}).SetFilter(bson.D{{Key: \"_id\", Value: op(\"$in\", g.ids)}, {Key: \"state\", Value: core.JobActive}})\n",
		suite: "./tests", run: "TestTheHistoryOfAQueueKeepsItsRules", long: true,
	},
	{
		rule:  "an extension names the token of its lease",
		file:  "store/mongo/extend.go",
		from:  "		models[i] = heldUpdate(g.ids, g.token, bson.D{{Key: \"lease_until\", Value: leaseFromNow(length)}})\n",
		to:    "		models[i] = mongo.NewUpdateManyModel().SetUpdate(bson.A{op(\"$set\", bson.D{{Key: \"lease_until\", Value: leaseFromNow(length)}})}).SetFilter(bson.D{{Key: \"_id\", Value: op(\"$in\", g.ids)}, {Key: \"state\", Value: core.JobActive}})\n",
		suite: "./store/mongo", run: "TestTheQueueConforms/ReplicaSet/Extend", long: true,
	},
	{
		rule:  "what is taken back is still lent, and its lease ran out",
		file:  "store/mongo/takeback.go",
		from:  `{Key: "_id", Value: op("$in", ids)}, {Key: "state", Value: core.JobActive}, {Key: "token", Value: op("$in", tokens)}, ranOut(),`,
		to:    `{Key: "_id", Value: op("$in", append(ids[:0:0], ids[:min(len(ids), len(tokens))]...))},`,
		suite: "./store/mongo", run: "TestTheQueueConforms/ReplicaSet/TakeBack/SettledJobIsNeverOverwritten",
	},
	{
		rule:  "a lease is taken back some time after its end",
		file:  "store/mongo/takeback.go",
		from:  "fromNow(-core.TakeBackGrace)",
		to:    "fromNow(0)",
		suite: "./store/mongo", run: "TestTheQueueConforms/ReplicaSet/TakeBack/WaitsForTheGrace", long: true,
	},
	{
		rule:  "a primary whose clock is ahead takes nothing back early",
		file:  "store/mongo/takeback.go",
		from:  "fromNow(-core.TakeBackGrace)",
		to:    "fromNow(0)",
		suite: "./tests", run: "TestAPrimaryWhoseClockIsAheadTakesNothingBackEarly", long: true,
	},
	{
		rule:  "only ready jobs are claimed",
		file:  "store/mongo/claim.go",
		from:  "		{Key: \"state\", Value: core.JobReady},\n		{Key: \"claimed_at\", Value: op(\"$in\", times)},\n",
		to:    "",
		suite: "./store/mongo", run: "TestNoJobIsHeldTwice", long: true,
	},
	{
		rule:  "a claim is only won for jobs that are as they were found",
		file:  "store/mongo/claim.go",
		from:  "		{Key: \"claimed_at\", Value: op(\"$in\", times)},\n",
		to:    "",
		suite: "./store/mongo", run: "TestAJobThatCameBackSinceItWasFoundIsNotLent",
	},
	{
		rule:  "attempts are counted",
		file:  "store/mongo/settle.go",
		from:  "	if g.kind != core.GiveBack && !g.uncounted {\n",
		to:    "	if g.kind == core.Complete {\n",
		suite: "./store/mongo", run: "TestTheQueueConforms/ReplicaSet/Settle/AttemptsAreCounted", long: true,
	},
	{
		rule:  "a duplicate leaves the job that is there",
		file:  "store/mongo/enqueue.go",
		from:  "	isNew := op(\"$eq\", bson.A{\"$$ROOT\", bson.D{{Key: \"_id\", Value: \"$_id\"}}})\n",
		to:    "	isNew := op(\"$eq\", bson.A{1, 1})\n",
		suite: "./store/mongo", run: "TestTheQueueConforms/ReplicaSet/Dedup", long: true,
	},
	{
		rule:  "a call ends when the leases of its jobs do",
		file:  "relay/workerlease.go",
		from:  "			if !j.done && j.cancel != nil {\n",
		to:    "			if !j.done && j.cancel == nil && false {\n",
		suite: "./relay", run: "TestALostLeaseCancelsItsCallAndNothingIsWrittenUnderIt", long: true,
	},
}
