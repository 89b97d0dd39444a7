package relay

import (
	"context"
	"time"

	"github.com/gooutbox/outbox/core"
)

const (
	// tenantsAtOnce is how many tenants a claim takes jobs of. Of more, so many
	// come after the others.
	tenantsAtOnce = 100
	// tenantsFresh is how old the list may be while claims get all that they ask
	// for, and tenantsShare bounds the time that is spent on it: one part in so
	// many.
	tenantsFresh = 250 * time.Millisecond
	tenantsShare = 20
)

// tenants are those that have jobs of a worker's sink, a page of them.
type tenants struct {
	page  []string
	after string // the page begins behind this one
	some  bool   // there may be more behind the page
	asked time.Time
	cost  time.Duration
}

// load asks the store for the page, unless that was done lately and sure isn't
// wanted.
func (t *tenants) load(ctx context.Context, queue core.Queue, sink string, sure bool) error {
	began := time.Now()
	if !sure && !t.asked.IsZero() && began.Sub(t.asked) < max(tenantsFresh, tenantsShare*t.cost) {
		return nil
	}
	page, err := queue.Tenants(ctx, sink, t.after, tenantsAtOnce)
	if err != nil {
		return err
	}
	t.page, t.some = page, len(page) == tenantsAtOnce
	t.asked, t.cost = began, time.Since(began)
	return nil
}

// turn goes to the next page. It returns false after the last one, and goes to
// the first.
func (t *tenants) turn() bool {
	if !t.some {
		if t.after != "" {
			t.after, t.asked = "", time.Time{}
		}
		return false
	}
	t.after, t.asked = t.page[len(t.page)-1], time.Time{}
	return true
}

// one tells whether there are less than two tenants at all.
func (t *tenants) one() bool { return len(t.page) < 2 && !t.some && t.after == "" }

// allowed are the tenants of the page that may have jobs begun within the
// horizon, how many, and when a rate lets others.
func (w *worker) allowed(now time.Time) (names []string, room int, next time.Time) {
	paused := w.relay.pauses.pausedTenants()
	w.mu.Lock()
	defer w.mu.Unlock()
	horizon := w.speed.horizon(w.cfg.Lease)
	names = []string{}
	for _, name := range w.claims.tenants.page {
		if _, is := paused[name]; is {
			continue
		}
		of, at := w.limits.tenantRoom(name, now, horizon, w.hand.tenants[name])
		if of > 0 {
			names = append(names, name)
			room += of
		} else if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	return names, room, next
}
