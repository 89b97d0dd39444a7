package model

// Rules are what the protocol demands. The zero value keeps none; All keeps
// every one.
type Rules struct {
	// FencedPark: a job is parked in one transaction with a write of the
	// cursor document under its fence.
	FencedPark bool
	// FencedSettle: a job is settled under the token of its lease.
	FencedSettle bool
	// LoadJobs: a new holder loads the keys that have open jobs.
	LoadJobs bool
	// LoadLeased: among them those whose job is lent out.
	LoadLeased bool
	// LoadAfterFence: it loads them after it raised the fence.
	LoadAfterFence bool
	// LeaseBlocks: a job lent to a former holder blocks its key.
	LeaseBlocks bool
	// OneOfAKey: a call holds one event of a key.
	OneOfAKey bool
	// Followers: the followers of a parked event are parked behind it.
	Followers bool
	// ParkInOrder: they become visible in order.
	ParkInOrder bool
	// ParkBeforeSave: the position counts a refused event only once it is
	// durably a job.
	ParkBeforeSave bool
	// SavePrefix: the position goes to the first unsettled event, not the last
	// settled.
	SavePrefix bool
	// ReleaseInOneStep: a key is found empty and released under one lock.
	ReleaseInOneStep bool
	// Known: an event that has a job in any state is never sent directly.
	Known bool
	// KnownBelow: nor one of whose key a later event has a job.
	KnownBelow bool
}

// All returns every rule.
func All() Rules {
	return Rules{
		FencedPark: true, FencedSettle: true, LoadJobs: true, LoadLeased: true, LoadAfterFence: true,
		LeaseBlocks: true, OneOfAKey: true, Followers: true, ParkInOrder: true, ParkBeforeSave: true, SavePrefix: true,
		ReleaseInOneStep: true, Known: true, KnownBelow: true,
	}
}

// Faults is how much may go wrong in one history.
type Faults struct {
	// Refused, Rejected: answers of the sink.
	Refused, Rejected uint8
	// Lost: the sink accepted, the answer was lost and taken for a refusal.
	Lost uint8
	// Crashes and Freezes of a process.
	Crashes, Freezes uint8
	// EarlyEnds: leases that end while their holder is awake.
	EarlyEnds uint8
}

// Config is one search.
type Config struct {
	// Keys of the events in log order, such as "AAB"; at most four events of
	// keys A and B.
	Keys   string
	Rules  Rules
	Faults Faults
	// Hold: a failed event stops its key (onFailure: hold). Otherwise the key
	// goes on, and a first delivery of the failed event by a former holder is no
	// disorder.
	Hold bool
	// MaxStates bounds the search. Defaults to 30,000,000.
	MaxStates int
}

// maxAttempts is how often a job is tried before it is failed.
const maxAttempts = 2
