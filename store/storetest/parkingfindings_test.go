package storetest_test

// parkingFindings tells for each fault which rules of parked jobs find it.
var parkingFindings = map[string]string{
	"ForgetsWhatHolds": `
		CrashesEndAsFailed NoneIsCleaned OpenJobsComeByPosition RetryByHandIsListedAgain StatsCountThem
		WhatHoldsItsKeyIsOpen`,
	"HidesAllBefore":       "LaterOfTheKeyAreNotQueued UndecodableHidesNothing",
	"HidesTheWholeKey":     "LaterOfTheKeyAreNotQueued UndecodableHidesNothing",
	"HoldsAlways":          "SettleDecidesWhetherACrashHolds WhatIsFinalIsNotOpen",
	"LendsInTheOrderOfIDs": "ClaimedInTheOrderOfTheRequest",
	"LendsToWorkers":       "WorkersNeverGetThem",
	"LendsTwice":           "LentToOneAlone ReadyIsDiscarded",
	"LendsUnmarkedRepeat":  "ClaimGivesTheLease SettledJobsGoOn TakenBackIsRedelivered",
	"LendsUnmarkedRetry":   "RetryByHandIsListedAgain",
	"LendsWhatIsDueAlone":  "DelayedIsClaimed ExplainTellsWhatComesFirst SettledJobsGoOn",
	"LendsWithoutFence":    "ClaimGivesTheLease",
	"LendsWithoutRoute":    "ClaimGivesTheLease",
	"ListsAllThatFailed": `
		CrashesEndAsFailed ExplainTellsWhatComesFirst NoneIsCleaned RetryByHandIsListedAgain SettleDecidesWhetherACrashHolds
		StatsCountThem WhatIsFinalIsNotOpen`,
	"ListsByState": "WhatMovesIsNeverMissing",
	"ListsInTheOrderOfIDs": `
		ClaimGivesTheLease ClaimedInTheOrderOfTheRequest CrashesEndAsFailed ExplainTellsWhatComesFirst
		FormerHoldersLeaseIsGood LentToOneAlone NextHolderFindsThem NoneIsCleaned OpenJobsComeByPosition
		OpenJobsTellWhenTheyAreDue ParkedTwiceChangesNothing ReadyIsDiscarded RetryByHandIsListedAgain
		RetryByHandMakesAWaitingOneDue SettledJobsGoOn StatsCountThem WhatHoldsItsKeyIsOpen WhatIsFinalIsNotLent
		WhatIsFinalIsNotOpen WhatMovesIsNeverMissing`,
	"ListsWhatIsDueAlone": `
		DelayedIsClaimed ExplainTellsWhatComesFirst OpenJobsComeByPosition OpenJobsTellWhenTheyAreDue SettledJobsGoOn
		StatsCountThem`,
	"ListsWhatIsReadyAlone": `
		CrashesEndAsFailed FormerHoldersLeaseIsGood LentToOneAlone NextHolderFindsThem NoneIsCleaned OpenJobsComeByPosition
		OpenJobsTellWhenALeaseIsTakenBack ParkedTwiceChangesNothing ReadyIsDiscarded RetryByHandIsListedAgain
		SettledJobsGoOn StaleLeaseSettlesNothing StatsCountThem WhatHoldsItsKeyIsOpen`,
	"ParkTellsNoJob": `
		CrashesEndAsFailed DiscardReleasesTheKey ExplainTellsWhatComesFirst NoneIsCleaned OpenJobsComeByPosition
		ParkedTwiceChangesNothing RetryByHandIsListedAgain RetryByHandMakesAWaitingOneDue
		SettleDecidesWhetherACrashHolds WhatHoldsItsKeyIsOpen`,
	"ParkWakes": "ParkDoesNotWake",
	"ParksEverythingFailed": `
		AnotherCursorsJobsAreNotListed ClaimGivesTheLease ClaimedInTheOrderOfTheRequest CompletedOneOfTheKeyCounts
		CompletedStaysKnown CrashesEndAsFailed DelayedIsClaimed DiscardReleasesTheKey ExplainTellsWhatComesFirst
		ExtendedIsNotTakenBack FormerHoldersLeaseIsGood LentToOneAlone NextHolderFindsThem NoneIsCleaned
		OpenJobsComeByPosition OpenJobsTellWhenALeaseIsTakenBack OpenJobsTellWhenTheyAreDue ParkedTwiceChangesNothing
		ReadyIsDiscarded RetryByHandIsListedAgain RetryByHandMakesAWaitingOneDue SettleDecidesWhetherACrashHolds
		SettledJobsGoOn StaleHolderParksNothing StaleLeaseSettlesNothing StatsCountThem TakenBackIsRedelivered
		WhatHoldsItsKeyIsOpen WhatIsFinalIsNotLent WhatIsFinalIsNotOpen WhatMovesIsNeverMissing`,
	"ParksUnfenced":       "StaleHolderParksNothing",
	"ParksUnmarkedRepeat": "ClaimGivesTheLease",
	"ParksWithoutAttempts": `
		ClaimGivesTheLease OpenJobsComeByPosition RetryByHandMakesAWaitingOneDue SettledJobsGoOn WhatHoldsItsKeyIsOpen`,
	"ParksWithoutDelay": "OpenJobsTellWhenTheyAreDue RetryByHandMakesAWaitingOneDue StatsCountThem",
	"ParksWithoutHolding": `
		CrashesEndAsFailed NoneIsCleaned OpenJobsComeByPosition RetryByHandIsListedAgain StatsCountThem
		WhatHoldsItsKeyIsOpen`,
	"ParksWithoutLimit": "ClaimGivesTheLease",
	"ReadsParkedAsNew": `
		CompletedOneOfTheKeyCounts CompletedStaysKnown DiscardReleasesTheKey LaterOfTheKeyAreNotQueued NextHolderFindsThem
		ReadyIsDiscarded SettledBeforeAParkedOneIsQueued UndecodableHidesNothing`,
	"ReadsSettledAsNew":           "CompletedOneOfTheKeyCounts SettledBeforeAParkedOneIsQueued",
	"SettlesWithoutHolding":       "ExplainTellsWhatComesFirst WhatHoldsItsKeyIsOpen",
	"TakesBackAtTheEndOfTheLease": "OpenJobsTellWhenALeaseIsTakenBack",
	"TellsNoAttempts": `
		OpenJobsComeByPosition RetryByHandMakesAWaitingOneDue SettledJobsGoOn WhatHoldsItsKeyIsOpen`,
	"TellsNoDueTimes": "OpenJobsTellWhenALeaseIsTakenBack OpenJobsTellWhenTheyAreDue SettledJobsGoOn",
	"TellsNoKeys":     "OpenJobsComeByPosition",
	"WakesForAnySink": "DiscardWakes RetryByHandMakesAWaitingOneDue RetryByHandWakes",
}
