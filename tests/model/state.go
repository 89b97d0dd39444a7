package model

import "fmt"

const (
	relays    = 2
	maxEvents = 4
)

// What a job is in the database.
type jobState uint8

const (
	jobNone jobState = iota
	jobReady
	jobActive
	jobCompleted
	jobFailed
)

// What the holder of the cursor knows of an event in its own memory.
type seen uint8

const (
	unseen seen = iota
	delivered
	toPark
	queued
	toFail
)

type phase uint8

const (
	standby phase = iota
	loading
	running
)

// What a job's delivery was answered.
type answer uint8

const (
	noAnswer answer = iota
	accepted
	refused
	rejected
	acceptedButLost
)

func (a answer) String() string {
	return [...]string{"", " accepted", " REFUSED", " REJECTED", " accepted, answer lost"}[a]
}

// job is the stored job of an event.
type job struct {
	state    jobState
	holder   uint8 // relay + 1
	leased   bool  // the lease still runs
	token    uint8
	attempts uint8
}

// relay is the memory of one process.
type relay struct {
	frozen     bool
	phase      phase
	fence, pos uint8
	events     [maxEvents]seen
	parkedKeys uint8 // a bit per key that has parked jobs
	emptySeen  uint8 // a bit per key, for Rules.ReleaseInOneStep dropped
	// candidate and claimed are event + 1 of the job that was found, and the
	// one that is being delivered.
	candidate, claimed uint8
	token              uint8
	answer             answer
}

// state is everything: the stored cursor and jobs, what arrived, both
// processes, and how much may still go wrong.
type state struct {
	owner, fence, pos uint8
	leased            bool
	jobs              [maxEvents]job
	arrived           uint8
	relays            [relays]relay
	left              Faults
	broken            Violation
}

// Violation is a set of broken promises.
type Violation uint8

// The promises that the search checks.
const (
	OrderBroken Violation = 1 << iota
	PositionPassedUnsettled
	KeyLentTwice
	JobClaimedTwice
	HeldKeyPassed
	// Stuck: from some state full delivery can't be reached any more.
	Stuck
)

func (v Violation) String() string {
	var s string
	for i, name := range []string{
		"order of a key broken", "position passed an unsettled event", "two jobs of a key lent at once",
		"a job claimed twice", "a held key went past its failed event", "stuck",
	} {
		if v>>i&1 == 1 {
			if s != "" {
				s += ", "
			}
			s += name
		}
	}
	return s
}

// step names one transition, for traces.
type step struct {
	name   string
	relay  int
	event  int // -1 for none
	answer answer
}

func (s step) String() string {
	who := string(rune('A' + s.relay))
	if s.event < 0 {
		return who + " " + s.name
	}
	return fmt.Sprintf("%s %s e%d%s", who, s.name, s.event+1, s.answer)
}
