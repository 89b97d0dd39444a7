package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/relay"
)

// The verdicts of /readyz, the most pressing first: the first that applies is
// the verdict, and reasons stand in this order.
const (
	verdictStarting      = "starting"
	verdictStopped       = "stopped"
	verdictStoreDown     = "store-down"
	verdictCursorStopped = "cursor-stopped"
	verdictSinkDown      = "sink-down"
	verdictPlaceAging    = "place-aging"
	verdictBehind        = "relay-behind"
	verdictPoisonKey     = "poison-key"
	verdictClockApart    = "clock-apart"
	verdictOK            = "ok"
)

var verdictOrder = []string{
	verdictStarting, verdictStopped, verdictStoreDown, verdictCursorStopped, verdictSinkDown, verdictPlaceAging,
	verdictBehind, verdictPoisonKey, verdictClockApart,
}

// verdict is the answer of /readyz: whether events and jobs go out as they
// should, and if not, each reason why, the most pressing first. Last among the
// reasons stand the pauses of routes, also while all is well.
type verdict struct {
	Ready   bool     `json:"ready"`
	Verdict string   `json:"verdict"`
	Reasons []string `json:"reasons"`
}

// judgement gathers reasons.
type judgement struct {
	found []struct{ verdict, reason string }
	// notes are reasons why nothing goes out that somebody wants: they make
	// nothing unready.
	notes []string
}

func (j *judgement) add(verdict, about, format string, args ...any) {
	j.found = append(j.found, struct{ verdict, reason string }{verdict, about + fmt.Sprintf(format, args...)})
}

func (j *judgement) verdict() verdict {
	v := verdict{Ready: len(j.found) == 0, Verdict: verdictOK}
	for _, code := range verdictOrder {
		for _, f := range j.found {
			if f.verdict == code {
				v.Reasons = append(v.Reasons, f.reason)
			}
		}
		if len(v.Reasons) > 0 && v.Verdict == verdictOK {
			v.Verdict = code
		}
	}
	v.Reasons = append(v.Reasons, j.notes...)
	return v
}

// health makes one verdict of what a relay is doing. Its zero value says that
// the relay is starting.
type health struct {
	// behind is from which age of what waits on a relay counts as behind; 0
	// never.
	behind time.Duration

	mu      sync.Mutex
	relay   *relay.Relay
	stats   statsCache
	waiting error
}

// waitsFor tells why the relay hasn't started yet.
func (h *health) waitsFor(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiting = err
}

// of tells whose verdict it is from now on, and where its events are.
func (h *health) of(r *relay.Relay, store core.Admin) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.relay, h.stats.store = r, store
}

func (h *health) verdict() verdict {
	h.mu.Lock()
	r, waiting := h.relay, h.waiting
	h.mu.Unlock()
	var j judgement
	switch {
	case r != nil:
		s := r.Status()
		j.relay(s, time.Now())
		j.stats(s, h.stats.now(), h.behind)
	case waiting != nil:
		j.add(verdictStoreDown, "", "waiting for the store: %v", waiting)
	default:
		j.add(verdictStarting, "", "the relay is starting")
	}
	return j.verdict()
}

// poisonAttempts is from which refusal on an event that holds its key is a
// reason: one or two are everyday.
const poisonAttempts = 3

// relay tells whether events and jobs go out as they should, by what the relay
// knows itself. A route that stands by behind another process is as it should
// be, and so is one that somebody has paused, which is noted, and a worker.
func (j *judgement) relay(s relay.Status, now time.Time) {
	if !s.Running {
		j.add(verdictStopped, "", "the relay is not running")
	}
	for _, r := range s.Routes {
		at := "route " + r.Name + ": "
		if r.StoreError != "" {
			j.add(verdictStoreDown, at, "the store has failed for %s: %s", ago(now, r.StoreSince), r.StoreError)
		} else if r.State == relay.Standby && r.HeldBy == "" && s.Running {
			j.add(verdictCursorStopped, at, "no process holds its cursor")
		}
		if r.State == relay.Paused {
			j.notes = append(j.notes, at+pausedNote(r.Sink, r.Paused, r.PausedBy, r.PausedUntil))
		}
		if r.SinkError != "" {
			j.add(verdictSinkDown, at, "sink %s takes nothing since %s: %s", r.Sink, ago(now, r.SinkSince), r.SinkError)
		}
		if r.Stalled != "" {
			j.add(verdictPoisonKey, at, "nothing more is read since %s, an event that does not get through holds the position: %s",
				ago(now, r.StalledSince), r.Stalled)
		}
		if r.HeldKeys > 0 {
			j.add(verdictPoisonKey, at, "%d keys are held by events that failed for good: see outbox failed --cursor %s, then retry or discard them",
				r.HeldKeys, r.Name)
		}
		if b := r.Blocked; b != nil && b.Attempts >= poisonAttempts {
			j.add(verdictPoisonKey, at, "event %s was refused %d times and holds its key: %s", b.EventID, b.Attempts, b.Reason)
		}
	}
	for _, w := range s.Workers {
		at := "worker of sink " + w.Sink + ": "
		if w.StoreError != "" {
			j.add(verdictStoreDown, at, "the store has failed for %s: %s", ago(now, w.StoreSince), w.StoreError)
		}
		if w.SinkError != "" {
			j.add(verdictSinkDown, at, "it takes nothing since %s: %s", ago(now, w.SinkSince), w.SinkError)
		}
	}
}

const (
	// leastPlaceAge is how old a saved place may be whatever the window: an idle
	// holder saves it once a minute.
	leastPlaceAge = 5 * time.Minute
	// clockLimit is how far the store's clock may be from this process's.
	clockLimit = core.TakeBackGrace
)

// stats tells the same by what the store counts, for the cursors that this
// process holds and the sinks of its workers.
func (j *judgement) stats(s relay.Status, seen seenStats, behind time.Duration) {
	if seen.at.IsZero() {
		return
	}
	for _, c := range seen.Cursors {
		i := slices.IndexFunc(s.Routes, func(r relay.RouteStatus) bool { return r.Name == c.Name && r.State != relay.Standby })
		if i < 0 {
			continue
		}
		if seen.LogWindow > 0 && !c.Scanning && c.PlaceAge > max(leastPlaceAge, seen.LogWindow/5*4) {
			j.add(verdictPlaceAging, "route "+c.Name+": ", "its place in the server's log of changes is %s old, and that log goes back %s: beyond it the route scans, and repeats some events",
				span(c.PlaceAge), span(seen.LogWindow))
		}
		if behind > 0 && c.Lag.Age > behind && s.Routes[i].State != relay.Paused {
			j.add(verdictBehind, "route "+c.Name+": ", "the oldest of %s before it has waited %s", events(c.Lag.Events), span(c.Lag.Age))
		}
	}
	for _, sink := range seen.Sinks {
		worked := slices.ContainsFunc(s.Workers, func(w relay.WorkerStatus) bool { return w.Sink == sink.Sink && w.Paused == "" })
		if behind > 0 && worked && sink.OldestReady > behind {
			j.add(verdictBehind, "worker of sink "+sink.Sink+": ", "the oldest of %s that are due has waited %s", jobCount(sink.Ready), span(sink.OldestReady))
		}
	}
	if seen.apart.Abs() > clockLimit {
		j.add(verdictClockApart, "", "the store's clock is %s apart from this process's: let both follow a time server", span(seen.apart.Abs()))
	}
}

// pausedNote tells who has paused a sink, and until when.
func pausedNote(sink, reason, by string, until time.Time) string {
	note := "sink " + sink + " is paused"
	if by != "" {
		note += " by " + by
	}
	if !until.IsZero() {
		note += " until " + until.UTC().Format(time.RFC3339)
	}
	if reason == "" || reason == "paused" { // what stands there where nobody gave one
		return note
	}
	return note + ": " + reason
}

func ago(now, then time.Time) string { return now.Sub(then).Round(time.Second).String() }

const (
	// statsEvery is how often the store is asked for its counts at most, and
	// statsTimeout how long it may count.
	statsEvery   = 30 * time.Second
	statsTimeout = 10 * time.Second
	// statsPatience is how long a verdict waits for new counts before it is made
	// with the last ones: probes have short time limits.
	statsPatience = 500 * time.Millisecond
)

// statsCache remembers the store's last counts, so that a probe each second
// doesn't make it count each second.
type statsCache struct {
	store core.Admin

	mu    sync.Mutex
	asked time.Time
	done  chan struct{} // closed when the answer is there
	last  seenStats
}

// seenStats are counts as of a time; the zero value is none.
type seenStats struct {
	core.Stats
	at time.Time
	// apart is how far the store's clock is from this process's at least.
	apart time.Duration
}

// now asks the store, unless it did so lately.
func (c *statsCache) now() seenStats {
	c.mu.Lock()
	if c.asked.IsZero() || time.Since(c.asked) >= statsEvery {
		c.asked, c.done = time.Now(), make(chan struct{})
		go c.ask(c.done)
	}
	done := c.done
	c.mu.Unlock()
	patience := time.NewTimer(statsPatience)
	defer patience.Stop()
	select {
	case <-done:
	case <-patience.C:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// ask keeps what the store counts. Counts that fail are none: that the store
// fails is told otherwise.
func (c *statsCache) ask(done chan<- struct{}) {
	defer close(done)
	ctx, cancel := context.WithTimeout(context.Background(), statsTimeout)
	defer cancel()
	began := time.Now()
	stats, err := c.store.Stats(ctx)
	seen := seenStats{Stats: stats, at: began, apart: apart(stats.At, began, time.Now())}
	if err != nil {
		seen = seenStats{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = seen
}

// apart is how far a time that was read between two others lies outside of them.
func apart(at, from, to time.Time) time.Duration {
	switch {
	case at.Before(from):
		return at.Sub(from)
	case at.After(to):
		return at.Sub(to)
	}
	return 0
}
