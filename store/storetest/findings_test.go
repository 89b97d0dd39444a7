package storetest_test

import (
	"slices"
	"strings"
)

// findings names the subtests that must fail on a store with this fault, and
// those that may, where the order of concurrent transactions decides. No other
// may.
func findings(fault string) (must, may []string) {
	for group, rules := range mustFail[fault] {
		for rule := range strings.FieldsSeq(rules) {
			must = append(must, group+"/"+rule)
		}
	}
	for _, rule := range concurrent {
		if !slices.Contains(must, rule) {
			may = append(may, rule)
		}
	}
	return must, may
}

// concurrent are the rules that are tested with concurrent transactions.
var concurrent = []string{
	"Order/KeysKeepTheirCommitOrder", "Order/StoredKeysKeepTheirCommitOrder",
	"Concurrency/OneReaderSeesAllOnce", "Concurrency/FirstScanBesideAppendersSeesAllOnce",
	"Concurrency/TakeOversLoseNothing",
}

// mustFail tells for each fault and group which rules find it.
var mustFail = map[string]map[string]string{
	"AppendsOutsideTransactions": {
		"Transaction": "AppendAfterItsEndIsRefused AppendOutsideIsRefused",
	},
	"CommitsBesideTheTransaction": {
		"Transaction": `
			AbortLeavesNothing AppendAfterItsEndIsRefused AppendOutsideIsRefused CancelIsACommitOrAnError
			OpenTransactionIsNotRead PanicLeavesNothing SwallowedDuplicateIDCommitsNothing`,
		"Order": `
			KeysKeepTheirCommitOrder LateCommitIsReadAfterRecovery LateCommitIsReadByTheNextTerm
			LateCommitIsReadByTheSameTerm LateCommitOfTheFirstScanIsRead StoredKeysKeepTheirCommitOrder`,
		"Concurrency": "FirstScanBesideAppendersSeesAllOnce OneReaderSeesAllOnce TakeOversLoseNothing",
		"Model":       "RandomOperationsMatchIt",
	},
	"CommitsWhatWasAborted": {
		"Transaction": "AbortLeavesNothing",
		"Concurrency": "FirstScanBesideAppendersSeesAllOnce OneReaderSeesAllOnce TakeOversLoseNothing",
		"Model":       "RandomOperationsMatchIt",
	},
	"RunsTheFunctionAgainAfterADuplicate": {
		"Transaction": "SwallowedDuplicateIDCommitsNothing",
	},
	"AcceptsDuplicateIDs": {
		"Transaction": "DuplicateIDInOneCallIsRefused DuplicateIDIsRefused SwallowedDuplicateIDCommitsNothing",
		"Model":       "RandomOperationsMatchIt",
	},
	"DropsInvalidEvents": {
		"Validation": `
			AllProblemsAreNamedAtOnce EmptyKeyIsRefused EmptyTypeIsRefused HeaderLineBreakIsRefused
			HeaderNameIsRefused InvalidTextIsRefused LongIDIsRefused LongKeyIsRefused
			RefusedEventLeavesTheTransactionUsable ReservedHeaderIsRefused TooLargeEventIsRefused`,
	},
	"StoresPayloadsAsText": {
		"RoundTrip": "BinaryPayload BinaryPayloadThatClaimsToBeText",
	},
	"OrdersByID": {
		"Transaction": `
			EventsOfOneTransactionKeepTheirOrder OpenTransactionIsNotRead
			SeveralAppendsOfOneTransactionKeepTheirOrder`,
		"Order": `
			CommitsAreReadInTheirOrder LateCommitIsReadAfterRecovery LateCommitIsReadByTheNextTerm
			LateCommitIsReadByTheSameTerm LateCommitOfTheFirstScanIsRead StoredEventsAreReadInTheirOrder`,
		"Resume": `
			CaughtUpScanIsNotRepeated FirstScanAt0Of12 FirstScanAt10Of12 FirstScanAt1Of12 FirstScanAt4Of12
			FirstScanAt6Of12 FirstScanAt7Of12 RecoveryLosesNothing`,
		"Read":  "ErrorLosesNothing",
		"Model": "RandomOperationsMatchIt",
	},
	"MissesLateCommits": {
		"Transaction": "OpenTransactionIsNotRead",
		"Order":       "LateCommitIsReadByTheSameTerm LateCommitOfTheFirstScanIsRead",
	},
	"DropsUndecodable": {
		"Park": "UndecodableIsSetAside UndecodableIsSetAsideByAScan",
	},
	"ForgetsQueued": {
		"Park": `
			QueuedAfterRecovery QueuedForTheNextHolder QueuedForTheSameOwner
			QueuedWhenTheFirstScanIsRepeated`,
		"Model": "RandomOperationsMatchIt",
	},
	"IgnoresLimits": {
		"Read": "ByteLimitIsKept EventLimitIsKept",
	},
	"SkipsABatchAfterAnError": {
		"Read": "ErrorBeforeTheFirstEventLosesNothing ErrorLosesNothing",
	},
	"WaitsForEverWhenReleased": {
		"Release": "EndsAReadThatWaits",
	},
	"WaitsBeyondItsContext": {
		"Read": "EndsWithItsContext",
	},
	"SavesUnfenced": {
		"Fence": "StaleSaveBeforeAnotherOwnerWritesNothing StaleSaveBeforeTheSameOwnerWritesNothing",
		"Model": "RandomOperationsMatchIt",
	},
	"RenewsUnfenced": {
		"Fence": "StaleRenewBeforeAnotherOwnerWritesNothing StaleRenewBeforeTheSameOwnerWritesNothing",
		"Model": "RandomOperationsMatchIt",
	},
	"SuspectsUnfenced": {
		"Fence": "StaleSuspectBeforeAnotherOwnerWritesNothing StaleSuspectBeforeTheSameOwnerWritesNothing",
		"Model": "RandomOperationsMatchIt",
	},
	"ParksUnfenced": {
		"Fence": "StaleParkBeforeAnotherOwnerWritesNothing StaleParkBeforeTheSameOwnerWritesNothing",
		"Model": "RandomOperationsMatchIt",
	},
	"TellsNotOfTheFence": {
		"Fence":   "StaleSaveBeforeAnotherOwnerWritesNothing StaleSaveBeforeTheSameOwnerWritesNothing",
		"Release": "SaveAfterItIsFenced",
		"Model":   "RandomOperationsMatchIt",
	},
	"RenewsNothing": {
		"Lease":   "ChangedCursorIsNotTakenOver RenewExtends RenewedLeaseIsKept",
		"Fence":   "StaleRenewBeforeAnotherOwnerWritesNothing StaleRenewBeforeTheSameOwnerWritesNothing",
		"Release": "RenewAfterItIsFenced",
		"Model":   "RandomOperationsMatchIt",
	},
	"NeverRaisesTheFence": {
		"Fence":   "RisesForAnotherOwner RisesForTheSameOwner",
		"Release": "KeepsTheFence",
		"Model":   "RandomOperationsMatchIt",
	},
	"LosesTheFenceWithTheLease": {
		"Release": "KeepsTheFence",
		"Model":   "RandomOperationsMatchIt",
	},
	"GivesTheSameOwnerItsOldTerm": {
		"Fence": `
			RisesForAnotherOwner RisesForTheSameOwner StaleParkBeforeTheSameOwnerWritesNothing
			StaleReleaseBeforeTheSameOwnerFreesNothing StaleRenewBeforeTheSameOwnerWritesNothing
			StaleSaveBeforeTheSameOwnerWritesNothing StaleSuspectBeforeTheSameOwnerWritesNothing`,
		"Park":   "QueuedForTheSameOwner",
		"Poison": "FruitlessTermsAreCountedForAnotherOwner FruitlessTermsAreCountedForTheSameOwner SuspectIsNoted SuspectIsTakenBack",
	},
	"StealsRunningLeases": {
		"Lease": `
			ChangedCursorIsNotTakenOver HeldWhileItRuns ParkExtends RenewExtends RenewedLeaseIsKept
			SaveExtends StandbyTakesOverWhenItRanOut SuspectExtends UnchangedCursorIsTakenOver`,
		"Fence": `
			StaleParkBeforeAnotherOwnerWritesNothing StaleParkBeforeTheSameOwnerWritesNothing
			StaleReleaseBeforeAnotherOwnerFreesNothing StaleReleaseBeforeTheSameOwnerFreesNothing
			StaleRenewBeforeAnotherOwnerWritesNothing StaleRenewBeforeTheSameOwnerWritesNothing
			StaleSaveBeforeAnotherOwnerWritesNothing StaleSaveBeforeTheSameOwnerWritesNothing
			StaleSuspectBeforeAnotherOwnerWritesNothing StaleSuspectBeforeTheSameOwnerWritesNothing`,
		"Release":     "RepeatedDoesNotFreeTheNextHolder",
		"Concurrency": "OneOfManyStandbysGetsIn",
	},
	"TakesOverWhateverChanged": {
		"Lease":       "ChangedCursorIsNotTakenOver",
		"Concurrency": "OneOfManyStandbysGetsIn",
	},
	"HoldsForEver": {
		"Lease": `
			ExpiredHolderGoesOnOrIsTold ParkExtends RenewExtends SaveExtends StandbyTakesOverWhenItRanOut
			SuspectExtends`,
	},
	"KeepsTheLeaseWhenReleased": {
		"Order": "LateCommitIsReadAfterRecovery",
		"Release": `
			EndsAReadThatWaits LetsAStandbyInAtOnce ParkAfterItIsFenced RenewAfterItIsFenced
			SaveAfterItIsFenced SuspectAfterItIsFenced`,
		"Resume": "RecoveryCutShortLosesNothing RecoveryIsOverOnce RecoveryLosesNothing",
		"Park":   "QueuedAfterRecovery QueuedBehindThePosition",
		"Poison": "ReleasedTermsAreNotCounted",
		"Model":  "RandomOperationsMatchIt",
	},
	"ReleasesAnothersLease": {
		"Fence":   "StaleReleaseBeforeAnotherOwnerFreesNothing StaleReleaseBeforeTheSameOwnerFreesNothing",
		"Release": "RepeatedDoesNotFreeTheNextHolder",
	},
	"SavesWhatItRead": {
		"Start": "CursorsAreIndependent",
		"Lease": "ExpiredHolderGoesOnOrIsTold",
		"Fence": `
			StaleParkBeforeAnotherOwnerWritesNothing StaleParkBeforeTheSameOwnerWritesNothing
			StaleRenewBeforeAnotherOwnerWritesNothing StaleRenewBeforeTheSameOwnerWritesNothing
			StaleSaveBeforeAnotherOwnerWritesNothing StaleSaveBeforeTheSameOwnerWritesNothing
			StaleSuspectBeforeAnotherOwnerWritesNothing StaleSuspectBeforeTheSameOwnerWritesNothing`,
		"Release": "KeepsThePosition",
		"Resume": `
			AtExactly1Of6 AtExactly2Of6 AtExactly3Of6 AtExactly4Of6 AtExactly5Of6 FirstScanAt10Of12
			FirstScanAt1Of12 FirstScanAt4Of12 FirstScanAt6Of12 FirstScanAt7Of12 ManyTermsLoseNothing
			ReadAheadIsNotSaved RecoveryCutShortLosesNothing RecoveryIsOverOnce RecoveryLosesNothing
			SeveralSavesOfOneTerm`,
		"Park":  "QueuedAfterRecovery QueuedWhenTheFirstScanIsRepeated ThePositionPassesIt",
		"Clean": "KeepsWhatALaggingCursorNeeds",
		"Lag":   "AgeIsThatOfTheOldest CountsFromTheBeginning CountsWhatIsNotSettled",
		"Model": "RandomOperationsMatchIt",
	},
	"SavesWholeTransactions": {
		"Resume": `
			AtExactly3Of6 AtExactly4Of6 FirstScanAt10Of12 FirstScanAt4Of12 ManyTermsLoseNothing
			RecoveryLosesNothing SeveralSavesOfOneTerm`,
		"Model": "RandomOperationsMatchIt",
	},
	"SavesTheFirst": {
		"Start":  "CursorsAreIndependent",
		"Resume": "AtExactly2Of6 AtExactly3Of6 AtExactly4Of6 AtExactly5Of6 AtExactly6Of6",
		"Park":   "UndecodableIsSetAside",
		"Lag":    "CountsFromTheBeginning CountsWhatIsNotSettled",
		"Model":  "RandomOperationsMatchIt",
	},
	"SavesTheEndForThePlaceReached": {
		"Resume": "ReachedPlaceLosesNothing",
	},
	"BeginsNowWithEachTerm": {
		"Start":   "CursorIsCreatedOnce NowHoldsFromTheFirstAcquisitionOn",
		"Release": "ParkAfterItIsFenced RenewAfterItIsFenced SuspectAfterItIsFenced",
		"Resume":  "AtExactly0Of6",
		"Park":    "QueuedForTheNextHolder QueuedForTheSameOwner TwiceChangesNothing",
		"Poison": `
			AnotherSuspectStartsAnew FruitlessTermsAreCountedForAnotherOwner
			FruitlessTermsAreCountedForTheSameOwner ProgressEndsTheCount SuspectIsNoted SuspectIsTakenBack`,
		"Model": "RandomOperationsMatchIt",
	},
	"BeginsAtTheBeginning": {
		"Start": `
			AtHoldsForLaterTerms AtLeavesOutOlderEvents CursorIsCreatedOnce
			NowHoldsFromTheFirstAcquisitionOn NowLeavesOutWhatIsStored PublishedEventsAreLeftOut`,
	},
	"HasOnePlaceForAll": {
		"Start": "CursorsAreIndependent",
		"Park":  "NotQueuedForAnotherCursor",
		"Clean": "KeepsWhatAnotherCursorNeeds KeepsWhatIsYoungerThanTheRetention RemovesWhatIsOldAndSettled",
		"Model": "RandomOperationsMatchIt",
	},
	"RecoversFromNow": {
		"Order":  "LateCommitIsReadAfterRecovery",
		"Resume": "RecoveryCutShortLosesNothing RecoveryLosesNothing",
		"Park":   "QueuedAfterRecovery",
	},
	"ParksInMemoryOnly": {
		"Park": `
			KeepsTheEventAndTheReason LongReasonIsCut OutlivesItsTerm QueuedAfterRecovery
			QueuedForTheNextHolder QueuedForTheSameOwner QueuedWhenTheFirstScanIsRepeated SeveralAtOnce
			TwiceChangesNothing UndecodableIsSetAside UndecodableIsSetAsideByAScan`,
		"Clean": "KeepsFailedEvents",
		"Model": "RandomOperationsMatchIt",
	},
	"ParksTheFirstOnly": {
		"Park": "SeveralAtOnce",
	},
	"KeepsNoReason": {
		"Park": "KeepsTheEventAndTheReason LongReasonIsCut UndecodableIsSetAside UndecodableIsSetAsideByAScan",
	},
	"CountsNoFruitlessTerms": {
		"Poison": `
			FruitlessTermsAreCountedForAnotherOwner FruitlessTermsAreCountedForTheSameOwner
			ProgressEndsTheCount ReleasedTermsAreNotCounted RenewalIsNoProgress`,
		"Model": "RandomOperationsMatchIt",
	},
	"CountsEveryTermAsFruitless": {
		"Poison": "ProgressEndsTheCount ReleasedTermsAreNotCounted",
		"Model":  "RandomOperationsMatchIt",
	},
	"NotesNoSuspect": {
		"Poison": "AnotherSuspectStartsAnew SuspectIsCountedOnceATerm SuspectIsNoted",
	},
	"CleansWhatIsNeeded": {
		"Clean": "KeepsWhatALaggingCursorNeeds KeepsWhatAnUnstartedReaderNeeds KeepsWhatAnotherCursorNeeds",
	},
	"CleansWithoutRequiredCursors": {
		"Clean": "WaitsForCursorsThatMustBe",
	},
	"CleansYoungEvents": {
		"Clean": "KeepsWhatIsYoungerThanTheRetention NeedsARetention RemovesWhatIsOldAndSettled",
	},
	"CleansNothing": {
		"Clean": `
			KeepsWhatALaggingCursorNeeds KeepsWhatAnUnstartedReaderNeeds KeepsWhatAnotherCursorNeeds
			NeedsARetention RemovesWhatIsOldAndSettled WaitsForCursorsThatMustBe`,
	},
	"ReportsNoLag": {
		"Lag": "AgeIsThatOfTheOldest CountsFromTheBeginning CountsWhatIsNotSettled",
	},
}
