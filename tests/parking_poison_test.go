package tests

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestAPoisonKeyDelaysNoOther lets a sink refuse every event of one key, beside
// 499 healthy ones: these stay as fast as without.
func TestAPoisonKeyDelaysNoOther(t *testing.T) {
	phase := scale(6*time.Second, 30*time.Second)
	c := newParking(t, false, 0)
	c.config.MaxAttempts, c.config.BackoffMax = 100_000, 500*time.Millisecond
	w := c.orders(1<<30, 499, scale(100.0, 200))
	committing, stop := background(t, func(ctx context.Context) { _ = w.Run(ctx) }) // until stop
	relay := c.start()
	eventually(t, time.Minute, "the first deliveries", func() bool { return len(c.arrivals()) > 50 })

	const poison = "poison"
	wait := func() (from, to time.Time) {
		from = time.Now()
		every(t.Context(), phase)
		return from, time.Now()
	}
	before, until := wait()
	c.mood(poison, "refused")
	c.append(poison, 1, 3)
	refusedFrom, refusedTo := wait()
	require.Empty(t, c.versions(poison), "the key was not refused")
	refused := 0
	for _, n := range c.notes() {
		if n.Outcome == "refused" {
			require.Equal(t, poison+"-1", n.ID, "only the head of the key may be sent")
			refused++
		}
	}
	require.Positive(t, refused)
	c.mood(poison, "")
	after, end := wait()
	stop()
	<-committing
	c.awaitVersions("the refused key, in its order", poison, 1, 2, 3)
	c.awaitArrivals(relay, nil)
	c.stop(relay)

	p99 := func(from, to time.Time) time.Duration {
		var took []time.Duration
		for _, n := range c.arrivals() {
			if n.Key != poison && n.Occurred.After(from) && n.Occurred.Before(to) {
				took = append(took, n.At.Sub(n.Occurred))
			}
		}
		slices.Sort(took)
		require.NotEmpty(t, took)
		return took[len(took)*99/100]
	}
	// What was there before and after is the same machine's day.
	quiet := (p99(before, until) + p99(after, end)) / 2
	beside := p99(refusedFrom, refusedTo)
	ratio := beside.Seconds() / quiet.Seconds()
	c.check(fmt.Sprintf("refused=%d p99_without=%s p99_beside=%s ratio=%.2f", refused,
		quiet.Round(time.Millisecond), beside.Round(time.Millisecond), ratio),
		map[string]bool{poison + "-1": true, poison + "-2": true, poison + "-3": true}) // no part of the workload
	// No healthy event waited for the refused key. A busy machine makes the
	// ratio what it likes: only the long form asks for it.
	for _, n := range c.arrivals() {
		if n.Key != poison && n.Occurred.After(refusedFrom) && n.Occurred.Before(refusedTo.Add(-phase/2)) {
			require.True(t, n.At.Before(refusedTo), "%s waited for the refused key", n.ID)
		}
	}
	if soak {
		require.LessOrEqual(t, beside, max(2*quiet, 100*time.Millisecond), "p99 of the healthy keys")
	}
}
