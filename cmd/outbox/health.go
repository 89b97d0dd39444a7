package main

import (
	"fmt"
	"sync"
	"time"

	"github.com/gooutbox/outbox/relay"
)

// health makes one verdict of what a relay is doing. Its zero value says that
// the relay is starting.
type health struct {
	mu      sync.Mutex
	relay   *relay.Relay
	waiting error
}

// waitsFor tells why the relay hasn't started yet.
func (h *health) waitsFor(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiting = err
}

// of tells whose verdict it is from now on.
func (h *health) of(r *relay.Relay) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.relay = r
}

func (h *health) verdict() verdict {
	h.mu.Lock()
	r, waiting := h.relay, h.waiting
	h.mu.Unlock()
	switch {
	case r != nil:
		return judge(r.Status(), time.Now())
	case waiting != nil:
		return verdict{Reasons: []string{"waiting for the store: " + waiting.Error()}}
	}
	return verdict{Reasons: []string{"the relay is starting"}}
}

// poisonAttempts is from which refusal on an event that holds its key is a
// reason: one or two are everyday.
const poisonAttempts = 3

// judge tells whether events go out as they should. A route that stands by
// behind another process is as it should be.
func judge(s relay.Status, now time.Time) verdict {
	var reasons []string
	add := func(route, format string, args ...any) {
		reasons = append(reasons, "route "+route+": "+fmt.Sprintf(format, args...))
	}
	if !s.Running {
		reasons = append(reasons, "the relay is not running")
	}
	for _, r := range s.Routes {
		if r.StoreError != "" {
			add(r.Name, "the store has failed for %s: %s", ago(now, r.StoreSince), r.StoreError)
		} else if r.State == relay.Standby && r.HeldBy == "" && s.Running {
			add(r.Name, "no process holds its cursor")
		}
		if r.SinkError != "" {
			add(r.Name, "sink %s takes nothing since %s: %s", r.Sink, ago(now, r.SinkSince), r.SinkError)
		}
		if r.Stalled != "" {
			add(r.Name, "nothing more is read since %s, an event that does not get through holds the position: %s",
				ago(now, r.StalledSince), r.Stalled)
		}
		if b := r.Blocked; b != nil && b.Attempts >= poisonAttempts {
			add(r.Name, "event %s was refused %d times and holds its key: %s", b.EventID, b.Attempts, b.Reason)
		}
	}
	return verdict{Ready: len(reasons) == 0, Reasons: reasons}
}

func ago(now, then time.Time) string { return now.Sub(then).Round(time.Second).String() }
