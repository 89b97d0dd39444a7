package relay

import (
	"cmp"
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
	// Paused: this process holds the cursor, and somebody has paused its sink.
	Paused State = "paused"
)

// Status is what a relay is doing, as of the call.
type Status struct {
	// Owner is this process's name in the cursors that it holds.
	Owner string
	// Running tells whether Run is under way.
	Running bool
	// Routes are in the order of Config.Routes.
	Routes []RouteStatus
	// Workers are in the order of Config.Workers.
	Workers []WorkerStatus
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
	// Paused is why the sink is paused, empty while it isn't or on standby;
	// PausedUntil is when that ends by the store's clock, zero if somebody must
	// resume it.
	// PausedBy is the operator who set it, empty where a sink asked for it.
	Paused, PausedBy string
	PausedUntil      time.Time
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
	// BlockedKeys counts the keys whose next event waits after a failure or is
	// parked, and Blocked is the one that is tried next.
	BlockedKeys int
	Blocked     *BlockedKey
	// Parked counts the events that are in the queue and still to be delivered, or
	// that hold their key; HeldKeys counts the keys that are held so.
	Parked, HeldKeys int
}

// BlockedKey is a key whose next event waits after a failure.
type BlockedKey struct {
	// Key is the AggregateID, and EventID and EventType the event that waits.
	// All three are cut to 256 bytes. The type of an event that an earlier holder
	// parked is not known before it is tried.
	Key, EventID, EventType string
	// Attempts counts how often it was refused.
	Attempts int
	// Reason is the last failure, and RetryAt when it is tried next; zero if that
	// isn't known.
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
	for _, w := range r.workers {
		s.Workers = append(s.Workers, w.status())
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
	if t.paused {
		one, _ := t.route.relay.pauses.sink(t.route.cfg.Sink)
		s.State = Paused
		s.Paused, s.PausedBy, s.PausedUntil = cmp.Or(one.Reason, "paused"), one.By, one.Until
	}
	s.BlockedKeys = len(t.keys.waiting) + len(t.lines.all)
	s.Parked = t.lines.open
	for l := range t.lines.all {
		if l.holding() {
			s.HeldKeys++
		}
	}
	if t.over {
		return
	}
	s.Blocked = t.blockedLine()
	if len(t.keys.waiting) == 0 {
		return
	}
	k := t.keys.waiting[0]
	if s.Blocked != nil && !s.Blocked.RetryAt.IsZero() && s.Blocked.RetryAt.Before(k.wait.until) {
		return
	}
	head := t.win.at(k.head)
	s.Blocked = &BlockedKey{
		Key: short(k.name), EventID: short(head.entry.Event.ID), EventType: short(head.entry.Event.Type),
		Attempts: head.attempts, Reason: k.wait.reason.Error(), RetryAt: k.wait.until,
	}
}

// blockedLine is the key with parked events that is tried next. The lock is held.
func (t *term) blockedLine() *BlockedKey {
	var first *line
	for l := range t.lines.all {
		if len(l.jobs) == 0 {
			continue
		}
		if first == nil || first.place < 0 && l.place >= 0 || l.place >= 0 && l.due.Before(first.due) {
			first = l
		}
	}
	if first == nil {
		return nil
	}
	j := first.jobs[0]
	b := &BlockedKey{
		Key: short(first.key.name), EventID: short(j.open.EventID), EventType: short(j.kind), Attempts: j.attempts, Reason: j.reason,
	}
	if first.place >= 0 {
		b.RetryAt = first.due
	}
	return b
}
