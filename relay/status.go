package relay

import (
	"time"

	"github.com/gooutbox/outbox/core"
)

// State is what a route is doing.
type State string

// The states of a route.
const (
	// Standby: another process holds the cursor, or none does yet.
	Standby State = "standby"
	// Holding: this process holds the cursor and delivers.
	Holding State = "holding"
	// Waiting: this process holds the cursor, and its sink takes nothing at
	// present.
	Waiting State = "waiting"
)

// Status is what a relay is doing, as of the call.
type Status struct {
	// Owner is this process's name in the cursors that it holds.
	Owner string
	// Running tells whether Run is under way.
	Running bool
	// Routes are in the order of Config.Routes.
	Routes []RouteStatus
}

// RouteStatus is what one route is doing.
type RouteStatus struct {
	Name, Sink string
	State      State
	// Since is when the route began to stand by, or got the cursor that it
	// holds. Zero before Run.
	Since time.Time
	// HeldBy is the owner that holds the cursor, as far as this process knows.
	HeldBy string
	// StoreError is what the store answers at present, empty while it works,
	// and StoreSince when that began.
	StoreError string
	StoreSince time.Time
	// SinkError is why the sink takes nothing at present, empty while it
	// works; SinkSince is when that began and RetryAt when it is tried next.
	SinkError          string
	SinkSince, RetryAt time.Time
	// Fence is that of the present term, 0 on standby.
	Fence uint64
	// Position is the last that was saved or found. PositionTime is when its
	// event was committed, by the store's clock; zero if that isn't known.
	Position     core.Position
	PositionTime time.Time
	// LastProgress is when the position last moved in this process; zero if it
	// has not.
	LastProgress time.Time
	// Window counts the events that were read and are beyond the saved
	// position, InFlight those that the sink is being called with.
	Window, InFlight int
	// Stalled is why nothing more is read at present: a key that waits holds the
	// position, and the window is full. Empty while reading goes on. StalledSince
	// is when that began.
	Stalled      string
	StalledSince time.Time
	// BlockedKeys counts the keys whose next event waits after a failure, and
	// Blocked is the one that is tried next.
	BlockedKeys int
	Blocked     *BlockedKey
}

// BlockedKey is a key whose next event waits after a failure.
type BlockedKey struct {
	// Key is the AggregateID, and EventID and EventType the event that waits.
	// All three are cut to 256 bytes.
	Key, EventID, EventType string
	// Attempts counts how often it was refused.
	Attempts int
	// Reason is the last failure, and RetryAt when it is tried next.
	Reason  string
	RetryAt time.Time
}

// Status tells what the relay is doing. It may be called at any time by any
// goroutine, and asks no server.
func (r *Relay) Status() Status {
	s := Status{Owner: r.cfg.Owner, Running: r.running.Load(), Routes: make([]RouteStatus, len(r.routes))}
	for i, rt := range r.routes {
		s.Routes[i] = rt.status()
	}
	return s
}

// status adds what the term is doing.
func (t *term) status(s *RouteStatus) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.Window, s.InFlight = t.win.count(), t.inFlight
	if t.gate.until.After(time.Now()) || t.gate.rounds > 0 {
		s.State, s.RetryAt = Waiting, t.gate.until
	}
	s.BlockedKeys = len(t.keys.waiting)
	if s.BlockedKeys == 0 || t.over {
		return
	}
	k := t.keys.waiting[0]
	head := t.win.at(k.head)
	s.Blocked = &BlockedKey{
		Key: short(k.name), EventID: short(head.entry.Event.ID), EventType: short(head.entry.Event.Type),
		Attempts: head.attempts, Reason: k.wait.reason.Error(), RetryAt: k.wait.until,
	}
}
