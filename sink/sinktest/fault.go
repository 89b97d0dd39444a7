package sinktest

import (
	"context"
	"testing"
	"time"

	"github.com/gooutbox/outbox/core"
)

// slack is how much later than its context's end a call may return: what a
// protocol needs to be left in a sane state.
const slack = 3 * time.Second

// cuts are moments at which a call may be anywhere: before the connection,
// while sending, while waiting, done.
var cuts = []time.Duration{
	time.Microsecond, 20 * time.Microsecond, 50 * time.Microsecond, 100 * time.Microsecond, 200 * time.Microsecond,
	300 * time.Microsecond, 500 * time.Microsecond, 700 * time.Microsecond, time.Millisecond, 1500 * time.Microsecond,
	2 * time.Millisecond, 3 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond,
}

func unavailableIsClassified(t *testing.T, d Destination) {
	if d.Cut == nil {
		t.Skip("the harness can't cut the destination off")
	}
	s := d.open(t)
	mustDeliver(t, s, lease("before", 100)) // connections are open
	mend := d.Cut(t)
	for round := range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		unavailable := 0
		for i, r := range deliver(t, ctx, s, keys("cut", 10, 100)...) {
			switch r.Outcome {
			case core.Unavailable:
				unavailable++
			case core.NotAttempted, core.Unknown:
			default:
				t.Errorf("round %d, result %d of a destination that is cut off is %v (%v)", round, i, r.Outcome, r.Err)
			}
		}
		cancel()
		// The first round may lose an answer on a connection that was open.
		if round > 0 && unavailable == 0 {
			t.Errorf("round %d: no result is unavailable", round)
		}
	}
	mend()
	eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		return s.Deliver(ctx, []core.Lease{lease("after", 100)})[0].Outcome == core.Delivered
	}, "the destination is back and nothing is delivered")
}

func returnsByTheDeadline(t *testing.T, d Destination) {
	if d.Freeze == nil {
		t.Skip("the harness can't freeze the destination")
	}
	s := d.open(t)
	mustDeliver(t, s, lease("before", 100))
	thaw := d.Freeze(t)
	const limit = 700 * time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	leases := keys("frozen", 20, 100)
	began := time.Now()
	results := deliver(t, ctx, s, leases...)
	if took := time.Since(began); took > limit+slack {
		t.Errorf("Deliver returned %v after the end of its context", took-limit)
	}
	for i, r := range results {
		switch r.Outcome {
		case core.Unknown, core.NotAttempted, core.Unavailable:
		default:
			t.Errorf("result %d of a frozen destination is %v (%v)", i, r.Outcome, r.Err)
		}
	}
	thaw()
	// What is sent now comes after all that may still arrive from before.
	eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		return s.Deliver(ctx, []core.Lease{lease("after", 100)})[0].Outcome == core.Delivered
	}, "the destination thawed and nothing is delivered")
	checkTruth(t, d.received(t), leases, results)
}

func endedContextSendsNothing(t *testing.T, d Destination) {
	s := d.open(t)
	mustDeliver(t, s, lease("before", 100))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	leases := keys("ended", 20, 100)
	began := time.Now()
	results := deliver(t, ctx, s, leases...)
	if took := time.Since(began); took > slack {
		t.Errorf("Deliver with an ended context took %v", took)
	}
	for i, r := range results {
		if r.Outcome != core.NotAttempted {
			t.Errorf("result %d of a call whose context had ended is %v (%v), want not attempted", i, r.Outcome, r.Err)
		}
	}
	checkTruth(t, d.received(t), leases, results)
	mustDeliver(t, s, lease("after", 100))
}

func cancelledCallTellsTheTruth(t *testing.T, d Destination) {
	s := d.open(t)
	mustDeliver(t, s, lease("before", 100))
	var leases []core.Lease
	var results []core.Result
	for round := range 3 * len(cuts) {
		ctx, cancel := context.WithCancel(t.Context())
		timer := time.AfterFunc(cuts[round%len(cuts)], cancel)
		call := keys("cancelled", 20, 1000)
		began := time.Now()
		answers := deliver(t, ctx, s, call...)
		if took := time.Since(began); took > slack {
			t.Errorf("Deliver took %v, cancelled after %v", took, cuts[round%len(cuts)])
		}
		timer.Stop()
		cancel()
		leases, results = append(leases, call...), append(results, answers...)
	}
	mustDeliver(t, s, lease("after", 100))
	checkTruth(t, d.received(t), leases, results)
}

// eventually calls ok until it is true. Each call waits by itself, inside of
// Deliver or for the pause of a retry.
func eventually(t testing.TB, ok func() bool, otherwise string) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); !ok(); <-tick.C {
		if time.Now().After(end) {
			t.Fatal(otherwise)
		}
	}
}
