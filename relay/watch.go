package relay

import (
	"context"
	"errors"
	"time"

	"github.com/gooutbox/outbox/core"
)

const opWatch = "watching the queue"

// watchBackoff is how long to wait before a watch that failed begins again.
var watchBackoff = Backoff{Initial: time.Second, Max: 30 * time.Second}

// watch rings bells for what the store tells, until ctx ends or it turns out
// that the store can't tell.
func (r *Relay) watch(ctx context.Context) {
	waits := watchBackoff.start()
	for {
		began := time.Now()
		err := r.cfg.Queue.Watch(ctx, r.told)
		r.watching.Store(false)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, core.ErrNoWatch):
			return
		case err == nil:
			err = errors.New("watching the queue: it ended")
		}
		r.jobStore.failed(opWatch, err)
		if time.Since(began) > watchBackoff.Max {
			waits = watchBackoff.start()
		}
		if !sleep(ctx, waits.next()) {
			return
		}
	}
}

// told hears of one change.
func (r *Relay) told(w core.Wake) {
	if !r.watching.Swap(true) {
		r.jobStore.ok(opWatch)
	}
	if w.Sink == "" { // it may be a pause
		r.pauses.stale()
	}
	r.bells.ring(w.Sink)
}

// poll is how long to wait for a change at most.
func (r *Relay) poll() time.Duration {
	switch {
	case r.cfg.JobPoll > 0:
		return r.cfg.JobPoll
	case r.watching.Load():
		return DefaultJobPoll
	}
	return DefaultJobPollAlone
}
