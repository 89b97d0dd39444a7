package mongo

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
)

func tryAcquire(t *testing.T, s *Store, req core.AcquireRequest) (*cursor, error) {
	t.Helper()
	c, err := s.Acquire(t.Context(), req)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = c.Release(context.Background()) })
	return c.(*cursor), nil
}

func TestACursorIsHeldWhileItsLeaseRuns(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *Store) {
		first := acquire(t, s, "kafka", "one")
		_, err := tryAcquire(t, s, core.AcquireRequest{Name: "kafka", Owner: "two"})
		held, ok := errors.AsType[*core.HeldError](err)
		if !ok || held.Owner != "one" || held.Cursor != "kafka" || held.Revision == "" {
			t.Fatalf("got %v, want a HeldError of one", err)
		}
		if err := first.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		second := acquire(t, s, "kafka", "two")
		if second.Term().Fence <= first.Term().Fence {
			t.Errorf("the fence went from %d to %d", first.Term().Fence, second.Term().Fence)
		}
	})
}

func TestEveryAcquisitionRaisesTheFence(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *Store) {
		var last uint64
		for i := range 10 {
			c := acquire(t, s, "kafka", "me") // the same process again
			if c.Term().Fence <= last {
				t.Fatalf("acquisition %d: the fence went from %d to %d", i, last, c.Term().Fence)
			}
			last = c.Term().Fence
		}
		// Also when somebody deleted the document.
		if _, err := s.cursors.DeleteMany(t.Context(), bson.D{}); err != nil {
			t.Fatal(err)
		}
		if c := acquire(t, s, "kafka", "me"); c.Term().Fence <= last {
			t.Fatalf("the fence of the new document is %d, the old one's was %d", c.Term().Fence, last)
		}
	})
}

func TestOfManyThatAcquireAtOnceOneHolds(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *Store) {
		const processes = 8
		fences := make([]uint64, processes)
		var wg sync.WaitGroup
		for i := range processes {
			wg.Go(func() {
				c, err := s.Acquire(t.Context(), core.AcquireRequest{Name: "kafka", Owner: fmt.Sprint(i), Lease: time.Minute})
				if _, held := errors.AsType[*core.HeldError](err); err != nil && !held {
					t.Errorf("process %d: %v", i, err)
				}
				if err == nil {
					fences[i] = c.Term().Fence
				}
			})
		}
		wg.Wait()
		holders := 0
		for _, f := range fences {
			if f != 0 {
				holders++
			}
		}
		if holders != 1 {
			t.Errorf("%d processes hold the cursor", holders)
		}
	})
}

// Both processes have one name, so each may take the cursor from the other; no
// fence may be given twice.
func TestAcquisitionsAtTheSameClusterTimeGetDifferentFences(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{})
	var mu sync.Mutex
	seen := map[uint64]bool{}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 5 {
				c, err := s.Acquire(t.Context(), core.AcquireRequest{Name: "kafka", Owner: "me"})
				if err != nil {
					t.Errorf("acquiring: %v", err)
					return
				}
				mu.Lock()
				if seen[c.Term().Fence] {
					t.Errorf("fence %d was given twice", c.Term().Fence)
				}
				seen[c.Term().Fence] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
}

// Every write of a replaced holder: nothing changes, and it learns of it.
func TestAReplacedHolderWritesNothing(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *Store) {
		appendNow(t, s, order("a"))
		old := acquire(t, s, "kafka", "old")
		old.marks = true
		setCursor(t, s, "kafka", bson.D{{Key: "lease_until", Value: time.Unix(0, 0)}})
		acquire(t, s, "kafka", "new")
		before := storedCursor(t, s, "kafka")
		m := markAt(t, "a", 10, 1)
		for name, write := range map[string]func() error{
			"Renew":   func() error { return old.Renew(t.Context()) },
			"Save":    func() error { return old.Save(t.Context(), []core.Mark{m}) },
			"Suspect": func() error { return old.Suspect(t.Context(), m) },
			"Park": func() error {
				return old.Park(t.Context(), []core.Parked{{Entry: core.Entry{Event: order("a"), Mark: m}, Sink: "events"}})
			},
		} {
			if err := write(); !errors.Is(err, core.ErrFenced) {
				t.Errorf("%s: got %v, want ErrFenced", name, err)
			}
		}
		if err := old.Release(t.Context()); err != nil {
			t.Errorf("Release: %v", err)
		}
		if after := storedCursor(t, s, "kafka"); after.Revision != before.Revision || after.Owner != "new" {
			t.Errorf("the cursor changed: %+v, was %+v", after, before)
		}
		if n := count(t, s.jobs, bson.D{}); n != 0 {
			t.Errorf("%d jobs were written", n)
		}
		if n := count(t, s.log, bson.D{{Key: "published_at", Value: op("$ne", nil)}}); n != 0 {
			t.Errorf("%d events were marked", n)
		}
	})
}

func TestAHolderWhoseLeaseRanOutGoesOnUntilAnotherTakesOver(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *Store) {
		c := acquire(t, s, "kafka", "me")
		setCursor(t, s, "kafka", bson.D{{Key: "lease_until", Value: time.Unix(0, 0)}})
		if err := c.Save(t.Context(), []core.Mark{markAt(t, "a", 10, 1)}); err != nil {
			t.Fatal(err)
		}
		if doc := storedCursor(t, s, "kafka"); doc.LeaseUntil.Time().Before(time.Now()) {
			t.Errorf("the lease was not extended: %s", doc.LeaseUntil.Time())
		}
	})
}

// The database's clock says that the lease runs for an hour; the standby's own
// clock and an unchanged document are enough.
func TestAStandbyTakesOverWhenTheDocumentStaysUnchanged(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *Store) {
		holder := acquire(t, s, "kafka", "holder")
		setCursor(t, s, "kafka", bson.D{{Key: "lease_until", Value: time.Now().Add(time.Hour)}})
		_, err := tryAcquire(t, s, core.AcquireRequest{Name: "kafka", Owner: "standby"})
		held, ok := errors.AsType[*core.HeldError](err)
		if !ok {
			t.Fatal(err)
		}
		if err := holder.Renew(t.Context()); err != nil { // alive
			t.Fatal(err)
		}
		_, err = tryAcquire(t, s, core.AcquireRequest{Name: "kafka", Owner: "standby", Unchanged: held.Revision})
		again, ok := errors.AsType[*core.HeldError](err)
		if !ok || again.Revision == held.Revision {
			t.Fatalf("got %v: a holder that is alive lost its lease, or its revision stood still", err)
		}
		if _, err := tryAcquire(t, s, core.AcquireRequest{Name: "kafka", Owner: "standby", Unchanged: again.Revision}); err != nil {
			t.Fatal(err)
		}
		if err := holder.Renew(t.Context()); !errors.Is(err, core.ErrFenced) {
			t.Errorf("the former holder: got %v, want ErrFenced", err)
		}
	})
}

func TestReleaseKeepsFenceAndPositionAndMayBeRepeated(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *Store) {
		c := acquire(t, s, "kafka", "me")
		if err := c.Save(t.Context(), []core.Mark{markAt(t, "a", 10, 1)}); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := c.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		doc := storedCursor(t, s, "kafka")
		if numberOf(doc.Fence) != c.Term().Fence || doc.Position.Ordinal != 1 {
			t.Errorf("fence or position changed: %+v", doc)
		}
		if _, err := c.Read(t.Context(), core.ReadLimit{}); !errors.Is(err, core.ErrFenced) {
			t.Errorf("Read after Release: got %v, want ErrFenced", err)
		}
	})
}

func TestTermsWithoutProgressAreCounted(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{})
	die := func() { setCursor(t, s, "kafka", bson.D{{Key: "lease_until", Value: time.Unix(0, 0)}}) }
	want := func(n int) *cursor {
		t.Helper()
		c, err := s.Acquire(t.Context(), core.AcquireRequest{Name: "kafka", Owner: "me"})
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Term().Fruitless; got != n {
			t.Fatalf("%d terms without progress, want %d", got, n)
		}
		return c.(*cursor)
	}
	want(0)
	die()
	want(1)
	die()
	c := want(2)
	if err := c.Save(t.Context(), []core.Mark{markAt(t, "a", 10, 1)}); err != nil {
		t.Fatal(err)
	}
	die()
	c = want(0)
	if err := c.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	want(0) // a term that was given back did not crash
	die()
	c = want(1)
	if err := c.Save(t.Context(), []core.Mark{markAt(t, "a", 10, 1)}); err != nil { // nothing new
		t.Fatal(err)
	}
	die()
	want(2)
}

func TestASuspectIsCountedOnceATerm(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{})
	m := markAt(t, "poison", 10, 1)
	term := func(wantID string, wantCount int) core.Cursor {
		t.Helper()
		c := acquire(t, s, "kafka", "me")
		if got := c.Term(); got.SuspectID != wantID || got.SuspectCount != wantCount {
			t.Fatalf("suspect %q %d, want %q %d", got.SuspectID, got.SuspectCount, wantID, wantCount)
		}
		return c
	}
	for n := range 3 {
		id := "poison"
		if n == 0 {
			id = ""
		}
		c := term(id, n)
		for range 2 {
			if err := c.Suspect(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		}
	}
	c := term("poison", 3)
	if err := c.Suspect(t.Context(), markAt(t, "other", 10, 2)); err != nil {
		t.Fatal(err)
	}
	c = term("other", 1)
	if err := c.Save(t.Context(), []core.Mark{markAt(t, "other", 10, 2)}); err != nil { // it got through
		t.Fatal(err)
	}
	term("", 0)
}

func TestTheLeaseIsCountedFromBeforeTheWrite(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{})
	before := time.Now()
	c := acquire(t, s, "kafka", "me")
	if e := c.Expires(); e.Before(before.Add(time.Minute)) || e.After(time.Now().Add(time.Minute)) {
		t.Errorf("expires %s after the call", e.Sub(before))
	}
	first := c.Expires()
	if err := c.Renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !c.Expires().After(first) {
		t.Error("Renew did not extend the lease")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	last := c.Expires()
	if err := c.Renew(ended); err == nil || errors.Is(err, core.ErrFenced) {
		t.Errorf("got %v, want the end of the context", err)
	}
	if !c.Expires().Equal(last) {
		t.Error("a write that failed extended the lease")
	}
}

func TestWhereACursorStartsIsStoredWhenItIsCreated(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *Store) {
		at := time.Now().Add(-time.Hour).Truncate(time.Second)
		poll, err := s.polls(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for name, tc := range map[string]struct {
			start core.Start
			check func(doc cursorDoc) bool
		}{
			"beginning": {core.Start{}, func(d cursorDoc) bool {
				return d.Scan != nil && d.Scan.First && !d.Scan.Published && d.From.IsZero() && d.Position.Time.IsZero()
			}},
			"with published": {core.Start{IncludePublished: true}, func(d cursorDoc) bool { return d.Scan != nil && d.Scan.Published }},
			"at":             {core.Start{At: at}, func(d cursorDoc) bool { return d.Scan != nil && timeOf(d.From).Equal(at) }},
			"now": {core.Start{Now: true}, func(d cursorDoc) bool {
				return d.Scan == nil && !d.Position.Time.Before(d.Fence) && poll == !d.From.IsZero()
			}},
		} {
			if _, err := tryAcquire(t, s, core.AcquireRequest{Name: "c", Owner: "me", Start: tc.start}); err != nil {
				t.Fatal(err)
			}
			if doc := storedCursor(t, s, "c"); !tc.check(doc) {
				t.Errorf("%s: stored %+v", name, doc)
			}
			// What is asked for later doesn't move a cursor that exists.
			was := storedCursor(t, s, "c")
			c, err := tryAcquire(t, s, core.AcquireRequest{Name: "c", Owner: "me", Start: core.Start{At: at.Add(time.Minute)}})
			if err != nil {
				t.Fatal(err)
			}
			if is := storedCursor(t, s, "c"); is.From != was.From || is.Position != was.Position || (is.Scan == nil) != (was.Scan == nil) {
				t.Errorf("%s: moved to %+v", name, is)
			}
			_ = c.Release(t.Context())
			if _, err := s.cursors.DeleteMany(t.Context(), bson.D{}); err != nil {
				t.Fatal(err)
			}
		}
		_, err = tryAcquire(t, s, core.AcquireRequest{Name: "c", Owner: "me", Start: core.Start{At: time.Now().Add(time.Hour)}})
		if err == nil {
			t.Error("a start in the future was accepted")
		}
	})
}

func TestNamesThatLookLikeExpressionsAreNames(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{})
	acquire(t, s, "$fence", "$$NOW")
	if doc := storedCursor(t, s, "$fence"); doc.Owner != "$$NOW" {
		t.Errorf("stored %+v", doc)
	}
}

func TestALogThatIsPolledHasOneCursor(t *testing.T) {
	t.Parallel()
	db := servicetest.StandaloneDatabase(t)
	s := newStore(t, db, Config{AllowNoTransaction: true})
	acquire(t, s, "kafka", "me")
	if _, err := tryAcquire(t, s, core.AcquireRequest{Name: "amqp", Owner: "me"}); !errors.Is(err, ErrTooManyCursors) {
		t.Errorf("got %v, want ErrTooManyCursors", err)
	}
}

// A write that the majority did not acknowledge may be rolled back.
func TestAWriteConcernErrorIsNoSuccess(t *testing.T) {
	t.Parallel()
	db := faulty(t)
	s := newStore(t, db, Config{})
	c := acquire(t, s, "kafka", "me")
	expires := c.Expires()
	failNext(t, db, "update", notReplicated())
	if err := c.Save(t.Context(), []core.Mark{markAt(t, "a", 10, 1)}); err == nil {
		t.Error("Save took a write concern error for a success")
	}
	if !c.Expires().Equal(expires) || c.position.Time != 0 {
		t.Error("the failed Save counts as one")
	}
	failNext(t, db, "findAndModify", notReplicated())
	if _, err := tryAcquire(t, s, core.AcquireRequest{Name: "kafka", Owner: "me"}); err == nil {
		t.Error("Acquire took a write concern error for a success")
	}
}
