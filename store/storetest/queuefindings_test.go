package storetest_test

// queueFindings tells for each fault and group which rules find it.
var queueFindings = map[string]map[string]string{
	"ClaimsLeasedJobs": {
		"Claim": "LeaseThatRanOutIsNotClaimed LentToOneAlone MaxIsKept UndecodableIsLentWithItsError",
		"ClaimOrder": `
			DelayedJobsGoInTheOrderOfTheirTime HigherClassesGoFirst HigherClassesGoFirstInOneClaim
			JobsGoInTheOrderOfTheirCommits JobsOfOneCallGoInTheirOrder KeyedJobsOfOneCallGoInTheirOrder`,
		"Clock":  "WorkerAheadStealsNoLease WorkerBehindStealsNoLease",
		"Dedup":  "DuplicateTellsActive",
		"Settle": "OtherJobsOfTheClaimAreLeft",
		"StaleHolder": `
			CompleteOfAJobLentAgainIsLost EndUnknownOfAJobLentAgainIsLost FailOfAJobLentAgainIsLost
			GiveBackOfAJobLentAgainIsLost RepeatAfterTheJobMovedOnChangesNothing RetryOfAJobLentAgainIsLost`,
		"TakeBack": "WaitsForTheGrace",
	},
	"ClaimsOneMore": {
		"Claim": "LentToOneAlone MaxIsKept",
		"ClaimOrder": `
			ClassesGoBeforeTurns DelayedJobsGoInTheOrderOfTheirTime FreshJobsGoBeforeRetriedOnes HigherClassesGoFirst
			HigherClassesGoFirstInOneClaim JobsGoInTheOrderOfTheirCommits JobsOfOneCallGoInTheirOrder
			KeyedJobsOfOneCallGoInTheirOrder SpreadStartsFurtherOn TenantsTakeTurns`,
		"Operator": "DiscardRemoves RetryLeavesOthers",
		"TakeBack": "RunningLeasesAreLeft",
	},
	"CleansEverythingFinal": {
		"CleanJobs": "JobsOfCursorsStay OthersStay",
		"Parking":   "NoneIsCleaned",
	},
	"CleansNothing": {
		"CleanJobs": "CrashedGoAfterTheirRetention FailedGoAfterTheirRetention RemovedJobHoldsNoKey",
	},
	"CommitsBesideTheTransaction": {
		"Dedup": "AbortedJobHoldsNoKey",
		"Enqueue": `
			AbortLeavesNothing AfterItsEndIsRefused EventAndJobAreOneTransaction OpenTransactionIsNotSeen
			OutsideIsRefused`,
		"Watch": "AbortDoesNotWake",
	},
	"CountsRedeliveriesAsAttempts": {
		"StaleHolder": `
			CompleteOfATakenBackJobIsLost EndUnknownOfATakenBackJobIsLost FailOfATakenBackJobIsLost
			GiveBackOfATakenBackJobIsLost RetryOfATakenBackJobIsLost`,
		"TakeBack": "TakenBackIsRedelivered",
	},
	"CrashesForEver": {
		"CleanJobs": "CrashedGoAfterTheirRetention",
		"Operator":  "RetriedCrashMayComeBackAgain",
		"TakeBack":  "CrashesEndAsFailed FiveRedeliveriesUnlessAskedOtherwise",
		"Parking":   "CrashesEndAsFailed SettleDecidesWhetherACrashHolds",
	},
	"DeadlineFromTheAnswer": {
		"Claim": "GivesTheLease",
	},
	"DedupForgetsTheContent": {
		"Dedup": `
			OtherContentInOneCallIsAMismatch OtherContentIsAMismatch OtherContentThanACompletedJobsIsAMismatch`,
	},
	"DedupForgetsTheState": {
		"Dedup": `
			CompletedJobWhoseTimeIsOverBlocksNothing DuplicateTellsActive DuplicateTellsCompleted
			DuplicateTellsFailed DuplicateTellsUnknown`,
	},
	"DedupHasNoEnd": {
		"Dedup": "CompletedJobWhoseTimeIsOverBlocksNothing",
	},
	"DedupIgnoresTenants": {
		"Dedup": "TenantAndKeyAreToldApart TenantScopesTheKey",
	},
	"DropsDedupKeys": {
		"Dedup": `
			CompletedJobWhoseTimeIsOverBlocksNothing DuplicateInOneCallIsTold DuplicateInOneTransactionIsTold
			DuplicateIsTold DuplicateLeavesTheTransactionUsable DuplicateTellsActive DuplicateTellsCompleted
			DuplicateTellsFailed DuplicateTellsRetried DuplicateTellsUnknown OtherContentInOneCallIsAMismatch
			OtherContentIsAMismatch OtherContentThanACompletedJobsIsAMismatch SameContentIsNoMismatch
			TenantScopesTheKey`,
		"Enqueue":       "IDsAreAssigned WholeJobIsKept",
		"JobValidation": "InvalidDedupKeyIsRefused LongDedupKeyIsRefused",
		"Watch":         "DuplicateDoesNotWake",
	},
	"DropsMaxAttempts": {
		"Enqueue": "WholeJobIsKept",
	},
	"DropsResults": {
		"Settle": "AllKindsInOneCall AnotherKindLaterChangesNothing CompletedIsDoneWithItsResult",
		"StaleHolder": `
			CompleteOfAnothersJobIsLost EndUnknownOfAnothersJobIsLost FailOfAnothersJobIsLost
			GiveBackOfAnothersJobIsLost RetryOfAnothersJobIsLost`,
	},
	"DropsUndecodable": {
		"Claim": "UndecodableIsLentWithItsError",
	},
	"DryRunActs": {
		"Operator": "DryRunChangesNothing",
	},
	"DueTooLate": {
		"Clock": "WorkerAheadRetriesByTheStoresClock WorkerBehindRetriesByTheStoresClock",
		"Due":   "NextDueIsTheEarliest NextDueOfTenants OnlyReadyJobsAreDue ReadyJobIsDueNow",
	},
	"EmptyFilterSelectsAll": {
		"Operator": "EmptyFilterSelectsNothing",
	},
	"EnqueuesOutsideTransactions": {
		"Enqueue": "AfterItsEndIsRefused OutsideIsRefused",
	},
	"ExtendChangesNothing": {
		"Clock": "WorkerAheadKeepsItsLease WorkerBehindKeepsItsLease",
		"Extend": `
			GivesAWholeLease LostIsTold ManyAtOnce RanOutButNotTakenBackIsExtended StaleHolderLengthensNoNewLease`,
		"StaleHolder": "JobThatIsGoneIsLost",
		"TakeBack":    "ExtendedMeanwhileIsLeft",
		"Parking":     "ExtendedIsNotTakenBack StaleLeaseSettlesNothing",
	},
	"ExtendsUnfenced": {
		"Extend": "StaleHolderLengthensNoNewLease",
	},
	"ForgetsATenant": {
		"Due": "TenantsAreListed TenantsComePageByPage TenantsWithoutReadyJobsAreNotListed",
	},
	"GiveBackCounts": {
		"Settle":  "AttemptsAreCounted GivenBackIsAsNeverClaimed",
		"Parking": "SettledJobsGoOn",
	},
	"HidesLostLeases": {
		"Operator": "SettledAgainAfterARetryIsLost",
		"StaleHolder": `
			CompleteOfAJobLentAgainIsLost CompleteOfATakenBackJobIsLost CompleteOfAnothersJobIsLost
			EndUnknownOfAJobLentAgainIsLost EndUnknownOfATakenBackJobIsLost EndUnknownOfAnothersJobIsLost
			FailOfAJobLentAgainIsLost FailOfATakenBackJobIsLost FailOfAnothersJobIsLost GiveBackOfAJobLentAgainIsLost
			GiveBackOfATakenBackJobIsLost GiveBackOfAnothersJobIsLost JobThatIsGoneIsLost
			LostOnesDoNotHinderTheOthers RepeatAfterTheJobMovedOnChangesNothing RetryOfAJobLentAgainIsLost
			RetryOfATakenBackJobIsLost RetryOfAnothersJobIsLost`,
		"Parking": "StaleLeaseSettlesNothing",
	},
	"HidesRedeliveries": {
		"TakeBack": "TakenBackIsRedelivered",
	},
	"IgnoresDelays": {
		"CleanJobs": "OthersStay",
		"Clock":     "WorkerAheadRetriesByTheStoresClock WorkerBehindRetriesByTheStoresClock",
		"Dedup":     "DuplicateTellsRetried",
		"Due":       "OnlyReadyJobsAreDue",
		"Extend":    "SettledJobStaysSettled",
		"Settle":    "DelayCountsFromTheSettle GivenBackComesBackAfterItsDelay RetriedComesBackAfterItsDelay",
		"TakeBack":  "SettledMeanwhileIsLeft",
		"Parking":   "SettledJobsGoOn",
		"Watch":     "RetryByHandOfAWaitingJobWakes",
		"Operator":  "RetryMakesWaitingJobsDue",
	},
	"IgnoresFromRank": {
		"ClaimOrder": "FromRankLeavesOutHigherClasses",
	},
	"IgnoresNotBefore": {
		"Claim":      "DelayedJobIsLeft",
		"ClaimOrder": "DelayedJobsGoInTheOrderOfTheirTime",
		"Clock":      "WorkerAheadLeavesDelayedJobs WorkerBehindLeavesDelayedJobs",
		"Due":        "NextDueIsTheEarliest NextDueOfTenants",
		"Operator":   "RetryMakesWaitingJobsDue StatsCount",
	},
	"IgnoresPriorities": {
		"ClaimOrder": `
			ClassesGoBeforeTurns FromRankLeavesOutHigherClasses HigherClassesGoFirst HigherClassesGoFirstInOneClaim`,
		"Enqueue":       "WholeJobIsKept",
		"JobValidation": "PriorityIsChecked",
	},
	"IgnoresReservations": {
		"TakeBack": `
			ExtendedMeanwhileIsLeft FailingReservationsLeaveTheJobs LentAgainMeanwhileIsLeft ReservationsDecide
			SettledMeanwhileIsLeft`,
	},
	"IgnoresSpread": {
		"ClaimOrder": "SpreadStartsFurtherOn",
	},
	"IgnoresTenants": {
		"ClaimOrder": "OtherTenantsAreLeft TenantsTakeTurns",
	},
	"JoinsTenantAndKey": {
		"Dedup":   "TenantAndKeyAreToldApart",
		"Enqueue": "WholeJobIsKept",
	},
	"NeverTakesBack": {
		"CleanJobs": "CrashedGoAfterTheirRetention",
		"Clock": `
			WorkerAheadLosesItsLeaseInTime WorkerAheadTakesBackInTime WorkerBehindLosesItsLeaseInTime
			WorkerBehindTakesBackInTime`,
		"Extend":   "GivesAWholeLease LostIsTold StaleHolderLengthensNoNewLease",
		"Operator": "RetriedCrashMayComeBackAgain",
		"StaleHolder": `
			CompleteOfATakenBackJobIsLost CompleteOfAnothersJobIsLost EndUnknownOfATakenBackJobIsLost
			EndUnknownOfAnothersJobIsLost FailOfATakenBackJobIsLost FailOfAnothersJobIsLost
			GiveBackOfATakenBackJobIsLost GiveBackOfAnothersJobIsLost JobThatIsGoneIsLost
			LostOnesDoNotHinderTheOthers RetryOfATakenBackJobIsLost RetryOfAnothersJobIsLost`,
		"TakeBack": `
			CrashesEndAsFailed ExtendedMeanwhileIsLeft FailingReservationsLeaveTheJobs FiveRedeliveriesUnlessAskedOtherwise
			LentAgainMeanwhileIsLeft LimitBoundsOneCall NoRepeatEndsAsUnknown OnlyOfTheNamedSinks ReservationsDecide
			RunningLeasesAreLeft SettledMeanwhileIsLeft TakenBackIsRedelivered WaitsForTheGrace`,
		"Parking": `
			CrashesEndAsFailed SettleDecidesWhetherACrashHolds StaleLeaseSettlesNothing TakenBackIsRedelivered`,
	},
	"NothingCounts": {
		"Operator":    "RetryMakesWaitingJobsDue RetryStartsTheAttemptsAnew",
		"Settle":      "AttemptsAreCounted RetriedComesBackAtOnce RetriedKeepsTheReason",
		"StaleHolder": "RepeatAfterTheJobMovedOnChangesNothing",
		"TakeBack":    "TakenBackIsRedelivered",
		"Parking":     "SettledJobsGoOn",
	},
	"PauseHasNoEnd": {
		"Clock": "WorkerAheadPausesByTheStoresClock WorkerBehindPausesByTheStoresClock",
		"Pause": `
			EndedOneBindsNobody EndsByItself IsLengthened IsListedForAll IsNeverShortened
			OperatorDoesNotShortenASinks OperatorTakesOverASinks OperatorsIsLeftBySinks TargetsAreApart`,
	},
	"PauseShortens": {
		"Pause": "EndlessIsNeverShortened IsNeverShortened OperatorDoesNotShortenASinks",
	},
	"PauseTouchesAnOperators": {
		"Operator": "PauseByAnOperatorBinds",
		"Pause":    "OperatorTakesOverASinks OperatorsIsLeftBySinks",
	},
	"PausesAreByName": {
		"Pause": "TargetsAreApart",
	},
	"RepeatedSettleIsLost": {
		"Operator": "SettledAgainAfterARetryIsLost",
		"Settle": `
			CompleteAgainIsSafe EndUnknownAgainIsSafe FailAgainIsSafe GiveBackAgainIsSafe NoKindIsRefused
			RetryAgainIsSafe`,
		"StaleHolder": `
			CompleteOfAJobLentAgainIsLost CompleteOfAnothersJobIsLost EndUnknownOfAJobLentAgainIsLost
			EndUnknownOfAnothersJobIsLost FailOfAJobLentAgainIsLost FailOfAnothersJobIsLost
			GiveBackOfAJobLentAgainIsLost GiveBackOfAnothersJobIsLost RepeatAfterTheJobMovedOnChangesNothing
			RetryOfAJobLentAgainIsLost RetryOfAnothersJobIsLost`,
		"Parking": "StaleLeaseSettlesNothing",
	},
	"RepeatsWhatMustNotBe": {
		"TakeBack": `
			ExtendedMeanwhileIsLeft FailingReservationsLeaveTheJobs LentAgainMeanwhileIsLeft NoRepeatEndsAsUnknown
			ReservationsDecide SettledMeanwhileIsLeft`,
	},
	"RetryByHandHastensAll": {
		"Operator": "RetryMakesWaitingJobsDue RetrySpreadsKeysInTheirOrder",
		"Parking":  "RetryByHandMakesAWaitingOneDue",
	},
	"RetryByHandIsHidden": {
		"Operator": "RetryStartsTheAttemptsAnew",
	},
	"RetryByHandKeepsTheAttempts": {
		"Operator": "RetryMakesWaitingJobsDue RetryStartsTheAttemptsAnew",
	},
	"RetryByHandLeavesWaitingJobs": {
		"Operator": "RetryMakesWaitingJobsDue",
		"Watch":    "RetryByHandOfAWaitingJobWakes",
		"Parking":  "RetryByHandMakesAWaitingOneDue",
	},
	"ServesTheFirstTenantFirst": {
		"ClaimOrder": "ClassesGoBeforeTurns TenantsTakeTurns",
	},
	"SettlesUnfenced": {
		"StaleHolder": `
			CompleteOfAJobLentAgainIsLost CompleteOfAnothersJobIsLost EndUnknownOfAJobLentAgainIsLost
			EndUnknownOfAnothersJobIsLost FailOfAJobLentAgainIsLost FailOfAnothersJobIsLost
			GiveBackOfAJobLentAgainIsLost GiveBackOfAnothersJobIsLost LostOnesDoNotHinderTheOthers
			RepeatAfterTheJobMovedOnChangesNothing RetryOfAJobLentAgainIsLost RetryOfAnothersJobIsLost`,
	},
	"SettlesWhatTheFirstIs": {
		"Settle": "AllKindsInOneCall",
	},
	"TakeBackOverwrites": {
		"TakeBack": "SettledMeanwhileIsLeft",
	},
	"TakesBackAllAtOnce": {
		"TakeBack": "LimitBoundsOneCall",
	},
	"TakesBackOfAnySink": {
		"TakeBack": "OnlyOfTheNamedSinks",
	},
	"TakesBackWithoutGrace": {
		"TakeBack": "WaitsForTheGrace",
	},
	"TakesFailedAnswersForNo": {
		"TakeBack": "FailingReservationsLeaveTheJobs",
	},
	"UncountedCounts": {
		"Settle":  "UncountedRetryCountsNoAttempt",
		"Parking": "SettledJobsGoOn",
	},
	"UnknownIsFailed": {
		"CleanJobs": "OthersStay",
		"Dedup":     "DuplicateTellsUnknown",
		"Operator":  "FilterByState StatsCount",
		"Settle":    "AllKindsInOneCall EndUnknownAgainIsSafe UnknownIsKept",
		"TakeBack":  "SettledMeanwhileIsLeft",
	},
	"UsesTheWorkersClock": {
		"Clock": `
			WorkerAheadEnqueuesWhatIsDueAtOnce WorkerAheadLeavesDelayedJobs WorkerAheadPausesByTheStoresClock
			WorkerAheadRetriesByTheStoresClock WorkerAheadStealsNoLease WorkerBehindKeepsItsLease
			WorkerBehindLeavesDelayedJobs WorkerBehindPausesByTheStoresClock WorkerBehindRetriesByTheStoresClock
			WorkerBehindTakesBackInTime`,
	},
	"UsesTokensTwice": {
		"Claim": "EachClaimIsAnotherLease",
	},
	"WakesForEverything": {
		"Watch": "ClaimDoesNotWake EndsDoNotWake ExtendDoesNotWake SingleClaimDoesNotWake",
	},
	"WakesForNamedSinksAlone": {
		"Watch": "PauseWakes ResumeWakes",
	},
	"WatchGoesOn": {
		"Watch": `
			AbortDoesNotWake ClaimDoesNotWake DedupKeyedEnqueueWakes DelayedEnqueueWakes DuplicateDoesNotWake
			EndsDoNotWake EndsWithItsContext EnqueueWakes ExtendDoesNotWake GiveBackWakes PauseWakes ResumeWakes
			RetryByHandOfAWaitingJobWakes RetryByHandWakes RetryWakes SingleClaimDoesNotWake`,
		"Parking": "DiscardWakes ParkDoesNotWake RetryByHandMakesAWaitingOneDue RetryByHandWakes",
	},
}
