package relay

import (
	"context"
	"errors"
	"time"

	"github.com/gooutbox/outbox/core"
)

// watchLease ends the term when the lease has run out on this process's own
// clock, whatever else hangs. Each write of the cursor moves the moment.
func (t *term) watchLease() {
	for {
		left := time.Until(t.cursor.Expires())
		if left <= 0 {
			t.end(errLeaseEnded)
			return
		}
		if !sleep(t.alive, left) {
			return
		}
	}
}

// renew extends the lease when nothing was written for a third of it. It has a
// goroutine of its own, so that no work and no retry of another write holds it
// up.
func (t *term) renew() {
	lease := t.route.relay.cfg.CursorLease
	for {
		due := time.Until(t.cursor.Expires().Add(-lease * 2 / 3))
		if due > 0 {
			if !sleep(t.alive, due) {
				return
			}
			continue // a Save may have moved it
		}
		ctx, cancel := context.WithTimeout(t.alive, lease/3)
		err := t.cursor.Renew(ctx)
		cancel()
		switch {
		case err == nil:
			t.route.store.ok(opRenew)
		case errors.Is(err, core.ErrFenced):
			t.end(err)
			return
		case t.alive.Err() != nil:
			return
		default:
			t.route.store.failed(opRenew, err)
			if !sleep(t.alive, lease/10) {
				return
			}
		}
	}
}
