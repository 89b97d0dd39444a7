package dedupe_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gooutbox/outbox/consumer"
	"github.com/gooutbox/outbox/consumer/dedupe"
	"github.com/gooutbox/outbox/consumer/dedupe/memory"
	"github.com/gooutbox/outbox/core"
)

func newGuard(t testing.TB, cfg dedupe.Config) (*dedupe.Guard, *memory.Store) {
	t.Helper()
	s := memory.New()
	cfg.Consumer = "mailer"
	g, err := dedupe.New(s, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return g, s
}

func delivery(id string) consumer.Delivery {
	return consumer.Delivery{Event: core.Event{ID: id, Aggregate: "order", AggregateID: "o-1", Type: "order.placed"}, Route: "kafka"}
}

func nothing(context.Context) error { return nil }

var errEffect = errors.New("out of stock")

func TestAFailedEffectIsTriedAgain(t *testing.T) {
	t.Parallel()
	g, _ := newGuard(t, dedupe.Config{})
	if v, err := g.Once(t.Context(), delivery("a"), func(context.Context) error { return errEffect }); v != 0 || !errors.Is(err, errEffect) {
		t.Errorf("%v, %v", v, err)
	}
	for _, want := range []dedupe.Verdict{dedupe.Fresh, dedupe.Repeated} {
		if v, err := g.Once(t.Context(), delivery("a"), nothing); v != want || err != nil {
			t.Errorf("%v, %v; want %v", v, err, want)
		}
	}
	if got := g.Stats(); got != (dedupe.Stats{Fresh: 1, Repeated: 1}) {
		t.Errorf("%+v", got)
	}
}

func TestABatchLeavesOutRepeats(t *testing.T) {
	t.Parallel()
	g, _ := newGuard(t, dedupe.Config{})
	if _, err := g.Once(t.Context(), delivery("b"), nothing); err != nil {
		t.Fatal(err)
	}
	ds := []consumer.Delivery{delivery("a"), delivery("b"), delivery("c"), delivery("a")}
	for _, end := range []error{errEffect, nil} {
		verdicts, err := g.OnceBatch(t.Context(), ds, func(_ context.Context, fresh []consumer.Delivery) error {
			if len(fresh) != 2 || fresh[0].ID != "a" || fresh[1].ID != "c" {
				t.Errorf("fresh: %v", fresh)
			}
			return end
		})
		if !errors.Is(err, end) || err == nil && !slices.Equal(verdicts, []dedupe.Verdict{dedupe.Fresh, dedupe.Repeated, dedupe.Fresh, dedupe.Repeated}) {
			t.Errorf("%v, %v", verdicts, err)
		}
	}
	_, err := g.OnceBatch(t.Context(), ds, func(context.Context, []consumer.Delivery) error {
		t.Error("called without a fresh event")
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if got := g.Stats(); got != (dedupe.Stats{Fresh: 3, Repeated: 6}) {
		t.Errorf("%+v", got)
	}
}

func TestOnlyNewerVersionsHaveAnEffect(t *testing.T) {
	t.Parallel()
	var gaps []dedupe.Gap
	g, _ := newGuard(t, dedupe.Config{OnGap: func(gap dedupe.Gap) { gaps = append(gaps, gap) }})
	for i, step := range []struct {
		version, before int64
		end             error
		want            dedupe.Verdict
	}{
		{4, 0, nil, dedupe.Fresh},
		{5, 0, errEffect, 0},
		{5, 4, nil, dedupe.Fresh},
		{5, 5, nil, dedupe.Repeated},
		{3, 5, nil, dedupe.Stale},
		{9, 0, errEffect, 0},
		{9, 5, nil, dedupe.Fresh},
	} {
		d := delivery(fmt.Sprint("e", i))
		d.AggregateVersion = step.version
		ran := false
		v, before, err := g.IfNewer(t.Context(), d, func(context.Context) error {
			ran = true
			return step.end
		})
		if v != step.want || before != step.before || !errors.Is(err, step.end) || ran != (step.want == dedupe.Fresh || step.end != nil) {
			t.Errorf("version %d: %v, before %d, %v, ran %v", step.version, v, before, err, ran)
		}
	}
	if want := []dedupe.Gap{{Aggregate: "order", AggregateID: "o-1", Before: 5, Version: 9}}; !slices.Equal(gaps, want) {
		t.Errorf("gaps: %+v, want %+v", gaps, want)
	}
	if got := g.Stats(); got != (dedupe.Stats{Fresh: 3, Repeated: 1, Stale: 1, Gaps: 1}) {
		t.Errorf("%+v", got)
	}
	_, _, err := g.IfNewer(t.Context(), delivery("x"), nothing)
	if core.ResultOf("", err).Outcome != core.Rejected {
		t.Errorf("without a version: %v", err)
	}
}

func TestALowerFenceIsDroppedUnlessItWasRedriven(t *testing.T) {
	t.Parallel()
	with := func(id string, fence uint64, change func(*consumer.Delivery)) consumer.Delivery {
		d := delivery(id)
		d.Fence = fence
		if change != nil {
			change(&d)
		}
		return d
	}
	steps := []struct {
		d    consumer.Delivery
		want dedupe.Verdict
	}{
		{with("a", 5, nil), dedupe.Fresh},
		{with("b", 4, nil), dedupe.Stale},
		{with("b", 4, func(d *consumer.Delivery) { d.AggregateID = "o-2" }), dedupe.Fresh},
		{with("c", 4, func(d *consumer.Delivery) { d.Route = "other" }), dedupe.Fresh},
		{with("d", 4, func(d *consumer.Delivery) { d.Redriven = true }), dedupe.Fresh},
		{with("e", 4, func(d *consumer.Delivery) { d.DeadLettered = true }), dedupe.Fresh},
		{with("f", 0, func(d *consumer.Delivery) { d.Route = "" }), dedupe.Fresh},
		{with("a", 7, nil), dedupe.Repeated}, // a repeat raises it, too
		{with("g", 6, nil), dedupe.Stale},
		{with("h", 7, nil), dedupe.Fresh},
	}
	g, _ := newGuard(t, dedupe.Config{Fence: true})
	batched, _ := newGuard(t, dedupe.Config{Fence: true})
	for i, step := range steps {
		if v, err := g.Once(t.Context(), step.d, nothing); err != nil || v != step.want {
			t.Errorf("step %d: %v, %v; want %v", i, v, err, step.want)
		}
		v, err := batched.OnceBatch(t.Context(), []consumer.Delivery{step.d}, func(context.Context, []consumer.Delivery) error { return nil })
		if err != nil || v[0] != step.want {
			t.Errorf("step %d in a batch: %v, %v; want %v", i, v, err, step.want)
		}
	}
	if v, err := g.Reserve(t.Context(), with("i", 1, nil), func(context.Context, bool) error { return errEffect }); err != nil || v != dedupe.Stale {
		t.Errorf("Reserve: %v, %v", v, err)
	}
	off, _ := newGuard(t, dedupe.Config{})
	for _, fence := range []uint64{5, 4} {
		if v, err := off.Once(t.Context(), with(fmt.Sprint(fence), fence, nil), nothing); err != nil || v != dedupe.Fresh {
			t.Errorf("switched off: %v, %v", v, err)
		}
	}
}

func TestOfTwoConsumersOneRunsAndTheOtherComesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, _ := newGuard(t, dedupe.Config{Lease: 9 * time.Second})
		release, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			v, err := g.Reserve(t.Context(), delivery("a"), func(context.Context, bool) error {
				<-release
				return nil
			})
			if v != dedupe.Fresh || err != nil {
				t.Errorf("the first: %v, %v", v, err)
			}
		}()
		for range 5 { // five leases long, since it is renewed
			time.Sleep(9 * time.Second)
			v, err := g.Reserve(t.Context(), delivery("a"), func(context.Context, bool) error { return errEffect })
			in, ok := errors.AsType[*dedupe.InFlightError](err)
			r := core.ResultOf("", err)
			if v != dedupe.InFlight || !ok || in.After <= 0 || !errors.Is(err, dedupe.ErrInFlight) || r.Outcome != core.Throttled || r.RetryAfter <= 0 {
				t.Fatalf("the second: %v, %v", v, err)
			}
		}
		close(release)
		<-done
		if v, err := g.Reserve(t.Context(), delivery("a"), func(context.Context, bool) error { return errEffect }); v != dedupe.Repeated || err != nil {
			t.Errorf("afterwards: %v, %v", v, err)
		}
		if got := g.Stats(); got != (dedupe.Stats{Fresh: 1, InFlight: 5, Repeated: 1}) {
			t.Errorf("%+v", got)
		}
	})
}

// cut is a store whose renewals don't arrive.
type cut struct{ dedupe.Store }

func (cut) Renew(context.Context, dedupe.Key, string, time.Duration) error {
	return core.MarkUnavailable(errors.New("the network is away"))
}

// A holder that can't renew ends its effect when its own lease is over, before
// another may begin; what it says afterwards changes nothing.
func TestAHolderThatLosesItsReservationStops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		frozen, err := dedupe.New(cut{s}, dedupe.Config{Consumer: "mailer", Lease: 9 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		g, err := dedupe.New(s, dedupe.Config{Consumer: "mailer", Lease: 9 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		ended := make(chan time.Duration, 1)
		release := make(chan struct{})
		done := make(chan error, 1)
		go func() {
			_, err := frozen.Reserve(t.Context(), delivery("a"), func(ctx context.Context, _ bool) error {
				<-ctx.Done()
				ended <- time.Since(began)
				<-release // it doesn't listen
				return nil
			})
			done <- err
		}()
		if after := <-ended; after > 10*time.Second {
			t.Errorf("the effect's context ended after %v", after)
		}
		time.Sleep(time.Second)
		again := false
		v, err := g.Reserve(t.Context(), delivery("a"), func(_ context.Context, a bool) error {
			again = a
			return nil
		})
		if v != dedupe.Fresh || err != nil || !again {
			t.Errorf("the next: %v, %v, again %v", v, err, again)
		}
		close(release)
		if err := <-done; !errors.Is(err, dedupe.ErrLost) {
			t.Errorf("the former holder: %v", err)
		}
		if got := frozen.Stats(); got.Lost != 1 || got.Fresh != 0 {
			t.Errorf("%+v", got)
		}
	})
}

func TestAnEffectOfUnknownOutcome(t *testing.T) {
	t.Parallel()
	unknown := core.MarkUnknown(errors.New("no answer"))
	for _, c := range []struct {
		policy dedupe.CrashPolicy
		err    error
		first  dedupe.Verdict
		next   dedupe.Verdict
		again  bool
	}{
		{dedupe.TryAgain, unknown, 0, dedupe.Fresh, true},
		{dedupe.Report, unknown, dedupe.Uncertain, dedupe.Uncertain, false},
		{dedupe.Report, context.DeadlineExceeded, dedupe.Uncertain, dedupe.Uncertain, false},
		{dedupe.TryAgain, errEffect, 0, dedupe.Fresh, false},
		{dedupe.Report, errEffect, 0, dedupe.Fresh, false},
	} {
		g, _ := newGuard(t, dedupe.Config{OnCrash: c.policy})
		v, err := g.Reserve(t.Context(), delivery("a"), func(context.Context, bool) error { return c.err })
		if v != c.first || !errors.Is(err, c.err) || errors.Is(err, dedupe.ErrUnknown) != (c.first == dedupe.Uncertain) {
			t.Errorf("%v %v: %v, %v", c.policy, c.err, v, err)
		}
		again := false
		v, err = g.Reserve(t.Context(), delivery("a"), func(_ context.Context, a bool) error {
			again = a
			return nil
		})
		if v != c.next || again != c.again || (err != nil) != (c.next == dedupe.Uncertain) {
			t.Errorf("%v %v, next: %v, %v, again %v", c.policy, c.err, v, err, again)
		}
		if c.next != dedupe.Uncertain {
			continue
		}
		if core.ResultOf("", err).Outcome != core.Rejected {
			t.Errorf("an unknown event is not for the dead letters: %v", err)
		}
		if err := g.Resolve(t.Context(), "a", false); err != nil {
			t.Fatal(err)
		}
		if v, err := g.Reserve(t.Context(), delivery("a"), func(context.Context, bool) error { return nil }); v != dedupe.Fresh || err != nil {
			t.Errorf("resolved: %v, %v", v, err)
		}
	}
}

func TestConfigNamesEveryProblem(t *testing.T) {
	t.Parallel()
	_, err := dedupe.New(memory.New(), dedupe.Config{Consumer: "a/b", Retention: 1, VersionRetention: 1, Lease: 1, OnCrash: 9})
	for _, want := range []string{"Consumer", "Retention", "VersionRetention", "Lease", "OnCrash"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is missing in %v", want, err)
		}
	}
}

// The mark is part of the effect.
func ExampleGuard_Once() {
	guard, err := dedupe.New(memory.New(), dedupe.Config{Consumer: "stock"})
	if err != nil {
		fmt.Println(err)
		return
	}
	stock := 10
	for range 3 { // the broker delivers it three times
		verdict, err := guard.Once(context.Background(), delivery("e-1"), func(context.Context) error {
			stock--
			return nil
		})
		fmt.Println(verdict, err, stock)
	}
	// Output:
	// fresh <nil> 9
	// repeated <nil> 9
	// repeated <nil> 9
}
