package storetest

import (
	"context"
	"errors"
	"time"

	"github.com/gooutbox/outbox/core"
)

// fencedWrite is one of the writes that only a holder may do.
type fencedWrite struct {
	name  string
	write func(ctx context.Context, c core.Cursor, e core.Entry) error
}

func fencedWrites() []fencedWrite {
	return []fencedWrite{
		{"Save", func(ctx context.Context, c core.Cursor, e core.Entry) error {
			return c.Save(ctx, []core.Mark{e.Mark})
		}},
		{"Renew", func(ctx context.Context, c core.Cursor, _ core.Entry) error { return c.Renew(ctx) }},
		{"Suspect", func(ctx context.Context, c core.Cursor, e core.Entry) error { return c.Suspect(ctx, e.Mark) }},
		{"Park", func(ctx context.Context, c core.Cursor, e core.Entry) error {
			return c.Park(ctx, []core.Parked{parked(e)})
		}},
	}
}

func leaseRules() []rule {
	rules := []rule{
		{name: "HeldWhileItRuns", check: func(k *kit) {
			k.cursor()
			held := k.held()
			if held.Cursor != cursorName || held.Owner != "first" || held.Revision == "" {
				k.Errorf("the error says %+v, want the cursor %q, the owner \"first\" and a revision", held, cursorName)
			}
			if again := k.held(); again.Revision != held.Revision {
				k.Errorf("the revision went from %q to %q, though the holder wrote nothing", held.Revision, again.Revision)
			}
		}},
		{name: "StandbyTakesOverWhenItRanOut", check: checkTakeOver},
		{name: "RenewedLeaseIsKept", check: checkRenewed},
		{name: "ExpiredHolderGoesOnOrIsTold", check: checkExpired},
		{name: "UnchangedCursorIsTakenOver", check: func(k *kit) {
			k.cursor()
			held := k.held()
			c, err := k.tryAcquire(k.other, core.AcquireRequest{Owner: "second", Unchanged: held.Revision})
			if err != nil {
				k.Fatalf("taking over an unchanged cursor: %v", err)
			}
			if got := k.held().Owner; got != "second" {
				k.Errorf("the holder is %q, want \"second\"", got)
			}
			if c.Term().Fence == 0 {
				k.Error("the fence is 0")
			}
		}},
		{name: "ChangedCursorIsNotTakenOver", check: func(k *kit) {
			c := k.cursor()
			seen := k.held().Revision
			if err := c.Renew(k.ctx); err != nil {
				k.Fatal(err)
			}
			_, err := k.tryAcquire(k.other, core.AcquireRequest{Owner: "second", Unchanged: seen})
			held, ok := errors.AsType[*core.HeldError](err)
			if !ok {
				k.Fatalf("taking over a cursor that was renewed since: %v, want a *core.HeldError", err)
			}
			if held.Revision == seen {
				k.Errorf("the revision is still %q", seen)
			}
		}},
	}
	for _, w := range fencedWrites() {
		rules = append(rules, rule{name: w.name + "Extends", check: func(k *kit) { checkExtends(k, w) }})
	}
	return rules
}

// retry calls try, which may fail, until it succeeds, and returns how long after
// begin that was.
func (k *kit) retry(begin time.Time, try func() bool) time.Duration {
	k.Helper()
	tick := time.NewTicker(k.h.Lease / 50)
	defer tick.Stop()
	for !try() {
		select {
		case <-tick.C:
		case <-k.ctx.Done():
			k.Fatal("gave up waiting")
		}
	}
	return time.Since(begin)
}

func checkTakeOver(k *kit) {
	begin := time.Now()
	k.acquire(k.store, core.AcquireRequest{Owner: "first", Lease: k.h.Lease})
	took := k.retry(begin, func() bool {
		_, err := k.tryAcquire(k.other, core.AcquireRequest{Owner: "second"})
		if _, held := errors.AsType[*core.HeldError](err); err != nil && !held {
			k.Fatalf("acquiring for the standby: %v", err)
		}
		return err == nil
	})
	// The store's clock may count whole milliseconds.
	if took < k.h.Lease-5*time.Millisecond {
		k.Errorf("taken over after %v, while the lease of %v ran", took, k.h.Lease)
	}
}

// checkRenewed: a holder that renews in time is never taken over from, for three
// leases on end.
func checkRenewed(k *kit) {
	c := k.acquire(k.store, core.AcquireRequest{Owner: "first", Lease: k.h.Lease})
	begin := time.Now()
	k.retry(begin, func() bool {
		safe := time.Now().Add(k.h.Lease - 5*time.Millisecond)
		if err := c.Renew(k.ctx); err != nil {
			k.Fatalf("renewing: %v", err)
		}
		_, err := k.tryAcquire(k.other, core.AcquireRequest{Owner: "second"})
		switch _, held := errors.AsType[*core.HeldError](err); {
		case err == nil && time.Now().Before(safe):
			k.Fatalf("taken over %v after the start, although the lease was just renewed", time.Since(begin))
		case err == nil:
			k.Skip("the machine is too slow for this lease")
		case !held:
			k.Fatalf("acquiring for the standby: %v", err)
		}
		return time.Since(begin) > 3*k.h.Lease
	})
}

// checkExpired: a holder whose lease ran out, and that nobody took over from,
// either writes or is told that it lost the lease. It is never told that a
// write was done that wasn't, or the other way round.
func checkExpired(k *kit) {
	c := k.acquire(k.store, core.AcquireRequest{Owner: "first", Lease: k.h.Lease, Start: core.Start{Now: true}})
	k.append("a", "b")
	entries := k.read(c, 2)
	if err := c.Renew(k.ctx); err != nil {
		k.Fatal(err)
	}
	k.retry(time.Now(), func() bool { return time.Now().After(c.Expires().Add(k.h.Lease / 10)) })
	err := c.Save(k.ctx, marksOf(entries[:1]))
	next := k.takeOver("second")
	switch {
	case err == nil:
		k.expect(next, "b")
	case errors.Is(err, core.ErrFenced):
		k.expect(next, "a", "b")
	default:
		k.Errorf("saving after the lease ran out: %v, want nil or core.ErrFenced", err)
	}
}

// checkExtends: a write gives a whole lease again, and shows that the holder is
// alive.
func checkExtends(k *kit, w fencedWrite) {
	c := k.cursor()
	k.append("a")
	e := k.read(c, 1)[0]
	revision := k.held().Revision
	before := time.Now()
	if err := w.write(k.ctx, c, e); err != nil {
		k.Fatal(err)
	}
	after := time.Now()
	if got := c.Expires(); got.Before(before.Add(long)) || got.After(after.Add(long)) {
		k.Errorf("the lease ends %v after the write was sent, want %v, counted from before it was sent",
			got.Sub(before), long)
	}
	if k.held().Revision == revision {
		k.Errorf("the revision is still %q", revision)
	}
}
