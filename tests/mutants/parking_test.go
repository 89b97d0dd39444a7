package mutants

// parkingMutants are those of what a cursor parks.
var parkingMutants = []mutant{
	{
		rule:  "jobs that a former holder lent block their key",
		file:  "relay/openjobs.go",
		from:  "		if l := t.listed(o, now); l != nil {\n",
		to:    "		if o.State == core.JobActive {\n			continue\n		}\n		if l := t.listed(o, now); l != nil {\n",
		suite: "./relay", run: "TestAJobThatIsLentToAFormerHolder|TestATakeOverKeeps",
	},
	{
		rule:  "the open jobs are known before anything is sent",
		file:  "relay/openjobs.go",
		from:  "		err := t.lookBefore(ctx)\n		if err == nil {\n",
		to:    "		err := error(nil)\n		if err == nil {\n",
		suite: "./relay", run: "TestNothingIsSentBeforeTheOpenJobsAreKnown|TestATakeOverKeeps",
	},
	{
		rule:  "followers of a parked event are not sent past it",
		file:  "relay/keys.go",
		from:  "if !k.inCall && !k.parking && k.line == nil && (",
		to:    "if !k.inCall && !k.parking && (",
		suite: "./relay", run: "TestARefusedEventIsParked|TestRandomHistories",
	},
	{
		rule:  "what is being parked counts before it is written",
		file:  "relay/parked.go",
		from:  "func (l *line) open() int { return len(l.jobs) + len(l.pending) }",
		to:    "func (l *line) open() int { return len(l.jobs) }",
		suite: "./relay", run: "TestARefusedEventIsParked|TestRandomHistories", long: true,
	},
	{
		rule:  "a key is released when nothing of it is open, and not before",
		file:  "relay/parked.go",
		from:  "	case open == 0:\n",
		to:    "	case open <= 1:\n",
		suite: "./relay", run: "TestARefusedEventIsParked|TestRandomHistories", long: true,
	},
	{
		rule:  "a key's jobs behind one that was not to be had are given back",
		file:  "relay/joblane.go",
		from:  "				j.mine, whole = false, false\n",
		to:    "				j.mine = false\n",
		suite: "./relay", run: "TestAGapInARunOfJobsEndsIt", long: true,
	},
	{
		rule:  "a failed event holds its key where the route says so",
		file:  "relay/park.go",
		from:  "return t.route.cfg.OnFailure == Hold &&",
		to:    "return false && t.route.cfg.OnFailure == Hold &&",
		suite: "./relay", run: "TestAnEventRejectedForGoodLeavesItsKeyOrHoldsIt", long: true,
	},
	{
		rule:  "an event behind which others of its key were parked is the queue's",
		file:  "store/mongo/batch.go",
		from:  "m.committed && r.behind(event.AggregateID, f.commit)",
		to:    "false",
		suite: "./store/mongo", run: "TestWhatWasSettledBeforeAParkedEventIsQueued", long: true,
	},
	{
		rule:  "an event that was parked is the queue's",
		file:  "store/mongo/cursor.go",
		from:  "	c.queued[idKey(noteOf(job.Lookup(\"_id\", \"event\")))] = struct{}{}\n",
		to:    "",
		suite: "./store/mongo", run: "TestTheNextHolderKnowsTheJobs", long: true,
	},
	{
		rule:  "only the ready jobs of its own cursor are a holder's to claim",
		file:  "store/mongo/openjobs.go",
		from:  `{Key: "_id", Value: op("$in", ids)}, {Key: "state", Value: core.JobReady}, {Key: "cursor", Value: c.doc.Name},`,
		to:    `{Key: "_id", Value: op("$in", ids)},`,
		suite: "./store/mongo", run: "TestTheQueueConforms/ReplicaSet/Parking", long: true,
	},
}
