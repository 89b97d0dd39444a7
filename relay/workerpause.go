package relay

import (
	"context"
	"time"

	"github.com/gooutbox/outbox/core"
)

const (
	opPause = "pausing the sink"
	// maxSpared bounds the pauses of parts of a sink that one call may ask for. What
	// else it throttles waits by its jobs alone, until a later call asks.
	maxSpared = 10
	// maxSparedKnown bounds what is remembered of them; above it all is forgotten.
	maxSparedKnown = 10_000
)

// throttle lets the whole fleet wait as long as the sink asks. The lock is held.
func (w *worker) throttle(now time.Time, j *held, r *core.Result, v *verdict) {
	after := r.RetryAfter
	if after <= 0 {
		after = w.cfg.OutageBackoff.Initial
	}
	if after > v.pause {
		v.pause, v.reason = after, reasonOf(r)
	}
	if until := now.Add(after); until.After(w.throttled) {
		w.throttled = until
	}
	w.gate.throttle(now, after) // until a pause is in force, see pauseSink
	w.outage.failed(opThrottle, reasonOf(r), "retry_in", after)
	v.settle(j, core.Settlement{
		Kind: core.Retry, Uncounted: true, Failure: failure(core.CodeUnavailable, reasonOf(r)), Delay: min(after, pausesFresh),
	})
}

// spare lets a tenant or a domain wait as long as the sink asks, fleet-wide; the
// others go on. The lock is held.
func (w *worker) spare(now time.Time, j *held, r *core.Result, v *verdict) {
	after := r.RetryAfter
	if after <= 0 {
		after = w.cfg.OutageBackoff.Initial
	}
	v.settle(j, core.Settlement{
		Kind: core.Retry, Uncounted: true, Failure: failure(core.CodeUnavailable, reasonOf(r)), Delay: after,
	})
	until := now.Add(after)
	if len(v.spare) >= maxSpared || until.Sub(w.spared[r.Throttles]) < min(pausesFresh, after) {
		return
	}
	if len(w.spared) >= maxSparedKnown {
		clear(w.spared)
	}
	w.spared[r.Throttles] = until
	v.spare = append(v.spare, core.Pause{PauseTarget: r.Throttles, For: after, Reason: reasonOf(r).Error()})
}

// pauseSink lets the whole fleet wait, as the sink asked. Where that can't be
// written, this worker waits alone.
func (w *worker) pauseSink(after time.Duration, reason error) {
	target := core.PauseTarget{Scope: core.PauseSink, Name: w.cfg.Sink}
	if one, paused := w.relay.pauses.sink(w.cfg.Sink); paused && (one.By != "" || one.Until.IsZero()) {
		return // an operator's
	}
	if !w.pause(core.Pause{PauseTarget: target, For: after, Reason: reason.Error()}) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gate.rounds == 0 {
		w.gate.until = time.Time{} // the pause rules from now on
	}
	w.signalRoom()
	w.work.Broadcast()
}

// pauseParts lets the whole fleet spare tenants and domains. Where that can't be
// written their jobs wait one by one.
func (w *worker) pauseParts(parts []core.Pause) {
	if !w.pause(parts...) {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, p := range parts {
			delete(w.spared, p.PauseTarget)
		}
		return
	}
	w.signalRoom()
}

// pause writes pauses, and sees that this process knows them. It returns false
// where that did not work.
func (w *worker) pause(all ...core.Pause) bool {
	ctx, cancel := context.WithTimeout(w.delivering, pausesTimeout)
	defer cancel()
	var err error
	for i := 0; i < len(all) && err == nil; i++ {
		err = w.relay.cfg.Queue.Pause(ctx, all[i])
	}
	w.relay.pauses.stale()
	if err == nil {
		err = w.relay.pauses.refresh(ctx, pausesFresh)
	}
	if err != nil {
		if w.delivering.Err() == nil {
			w.relay.jobStore.failed(opPause, err)
		}
		return false
	}
	w.relay.jobStore.ok(opPause)
	return true
}

// tellPause tells when an operator's pause of the sink begins, and when it ends.
// One that the sink asked for is told as throttled.
func (w *worker) tellPause() {
	one, paused := w.relay.pauses.sink(w.cfg.Sink)
	paused = paused && one.By != ""
	w.mu.Lock()
	defer w.mu.Unlock()
	if paused == w.pauseTold {
		return
	}
	w.pauseTold = paused
	if !paused {
		w.log.Info("the sink is no longer paused: its worker goes on")
		return
	}
	attrs := []any{"reason", one.Reason, "by", one.By}
	if !one.Until.IsZero() {
		attrs = append(attrs, "until", one.Until)
	}
	w.log.Warn("the sink is paused: its worker waits", attrs...)
}
