package dedupetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/gooutbox/outbox/consumer/dedupe"
)

func markIsKept(t *testing.T, s dedupe.Store) {
	if got := mark(t, s, nil, key("a")); !got[0] {
		t.Error("a new event is not fresh")
	}
	if got := mark(t, s, nil, key("a")); got[0] {
		t.Error("an event that was marked is fresh")
	}
}

func markOfAFailureIsNot(t *testing.T, s dedupe.Store) {
	mark(t, s, errEffect, key("a"))
	mark(t, s, errEffect, key("b"), key("c"))
	if got := mark(t, s, nil, key("a"), key("b"), key("c")); !slices.Equal(got, []bool{true, true, true}) {
		t.Errorf("after a failure events are taken for seen: %v. Their effect is lost", got)
	}
}

func errorComesBack(t *testing.T, s dedupe.Store) {
	err := s.Transaction(limited(t), func(context.Context, dedupe.Tx) error { return errEffect })
	if !errors.Is(err, errEffect) {
		t.Errorf("the function's error came back as %v", err)
	}
	ctx, cancel := context.WithCancel(limited(t))
	err = s.Transaction(ctx, func(ctx context.Context, tx dedupe.Tx) error {
		if _, err := tx.Mark([]dedupe.Key{key("a")}, retention); err != nil {
			return err
		}
		cancel()
		return ctx.Err()
	})
	if err == nil {
		t.Error("a transaction whose context ended succeeded")
	}
}

func repeatSpoilsNoOther(t *testing.T, s dedupe.Store) {
	mark(t, s, nil, key("b"))
	if got := mark(t, s, nil, key("a"), key("b"), key("c")); !slices.Equal(got, []bool{true, false, true}) {
		t.Fatalf("fresh: %v, want the second one to be repeated", got)
	}
	if got := mark(t, s, nil, key("a"), key("b"), key("c")); slices.Contains(got, true) {
		t.Errorf("fresh: %v, want all to be repeated", got)
	}
}

func consumersAreApart(t *testing.T, s dedupe.Store) {
	other := dedupe.Key{Consumer: "biller", EventID: "a"}
	mark(t, s, nil, key("a"))
	if got := mark(t, s, nil, other); !got[0] {
		t.Error("an event that one consumer has seen is repeated to another")
	}
	raise(t, s, nil, dedupe.Subject{Consumer: "mailer", Aggregate: "a", AggregateID: "1"}, 5)
	for _, subject := range []dedupe.Subject{
		{Consumer: "biller", Aggregate: "a", AggregateID: "1"},
		{Consumer: "mailer", Aggregate: "b", AggregateID: "1"},
		{Consumer: "mailer", Aggregate: "a", AggregateID: "2"},
		{Consumer: "mailer", Aggregate: "a1"},
	} {
		if before, known := raise(t, s, nil, subject, 1); known {
			t.Errorf("%+v has version %d of another", subject, before)
		}
	}
}

// many runs a function in several goroutines at once.
func many(n int, fn func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { fn(i) })
	}
	wg.Wait()
}

func oneOfManyMarks(t *testing.T, s dedupe.Store) {
	const events, racers = 20, 6
	for i := range events {
		keys := []dedupe.Key{key(fmt.Sprint("single", i)), key(fmt.Sprint("first", i)), key(fmt.Sprint("second", i))}
		var mu sync.Mutex
		fresh := map[dedupe.Key]int{}
		many(racers, func(n int) {
			for _, set := range [][]dedupe.Key{keys[:1], keys[1:]} {
				var got []bool
				err := s.Transaction(limited(t), func(_ context.Context, tx dedupe.Tx) error {
					var err error
					got, err = tx.Mark(set, retention)
					return err
				})
				if err != nil {
					t.Errorf("racer %d: %v: a conflict is run again by the store", n, err)
					return
				}
				mu.Lock()
				for j, k := range set {
					if got[j] {
						fresh[k]++
					}
				}
				mu.Unlock()
			}
		})
		for _, k := range keys {
			if fresh[k] != 1 {
				t.Fatalf("event %s was fresh %d times", k.EventID, fresh[k])
			}
		}
	}
}

var subject = dedupe.Subject{Consumer: "mailer", Aggregate: "order", AggregateID: "o-1"}

func highestVersionIsKept(t *testing.T, s dedupe.Store) {
	for _, step := range []struct {
		version, before int64
		known           bool
	}{{3, 0, false}, {5, 3, true}, {4, 5, true}, {5, 5, true}, {1 << 62, 5, true}, {6, 1 << 62, true}} {
		before, known := raise(t, s, nil, subject, step.version)
		if before != step.before || known != step.known {
			t.Errorf("raised to %d: was %d, %v; want %d, %v", step.version, before, known, step.before, step.known)
		}
	}
}

func versionOfAFailureIsNot(t *testing.T, s dedupe.Store) {
	raise(t, s, nil, subject, 1)
	raise(t, s, errEffect, subject, 2)
	if before, _ := raise(t, s, nil, subject, 2); before != 1 {
		t.Errorf("after a failure the version is %d, want 1: the effect is lost", before)
	}
}

// What each racer finds before its own version must be a chain.
func versionsAreRaisedOneByOne(t *testing.T, s dedupe.Store) {
	var mu sync.Mutex
	var steps [][2]int64
	many(12, func(i int) {
		before, _ := raise(t, s, nil, subject, int64(i+1))
		if before < int64(i+1) {
			mu.Lock()
			steps = append(steps, [2]int64{before, int64(i + 1)})
			mu.Unlock()
		}
	})
	slices.SortFunc(steps, func(a, b [2]int64) int { return int(a[1] - b[1]) })
	last := int64(0)
	for _, step := range steps {
		if step[0] != last {
			t.Fatalf("the steps %v are no chain: two effects were thought to be the newest", steps)
		}
		last = step[1]
	}
	if last != 12 {
		t.Errorf("the highest version is %d, want 12", last)
	}
}

func highestFenceIsKept(t *testing.T, s dedupe.Store) {
	lane := func(fence uint64, id string) dedupe.Lane {
		return dedupe.Lane{Consumer: "mailer", Route: "kafka", AggregateID: id, Fence: fence}
	}
	for _, step := range []struct {
		lanes []dedupe.Lane
		want  []uint64
	}{
		{[]dedupe.Lane{lane(9, "a")}, []uint64{9}},
		{[]dedupe.Lane{lane(10, "a"), lane(3, "b")}, []uint64{10, 3}},
		{[]dedupe.Lane{lane(9, "a"), lane(2, "b"), lane(4, "b")}, []uint64{10, 4, 4}},
		{[]dedupe.Lane{lane(1<<63+1, "a")}, []uint64{1<<63 + 1}},
		{[]dedupe.Lane{lane(1<<63, "a"), {Consumer: "mailer", Route: "amqp", AggregateID: "a", Fence: 1}, {Consumer: "biller", Route: "kafka", AggregateID: "a", Fence: 2}}, []uint64{1<<63 + 1, 1, 2}},
	} {
		if got := fences(t, s, step.lanes...); !slices.Equal(got, step.want) {
			t.Errorf("after %+v the fences are %v, want %v", step.lanes, got, step.want)
		}
	}
}
