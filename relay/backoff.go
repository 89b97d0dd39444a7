package relay

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// Backoff says how long to wait after failures: Initial after the first, twice
// as long after each further one, up to Max, each with a fifth of jitter. It
// never gives up.
type Backoff struct {
	// Initial is the first wait. Defaults to what the field of this type says.
	Initial time.Duration
	// Max is the longest wait. Defaults to what the field of this type says.
	Max time.Duration
}

func (b *Backoff) setDefaults(initial, longest time.Duration) {
	orDefault(&b.Initial, initial)
	orDefault(&b.Max, max(longest, b.Initial))
}

func (b *Backoff) check(add func(string, ...any), at string) {
	addNegative(add, at+".Initial", b.Initial)
	addNegative(add, at+".Max", b.Max)
	if b.Max > 0 && b.Max < b.Initial {
		add("%s.Max is %v, which is less than Initial, %v", at, b.Max, b.Initial)
	}
}

// waits is a sequence of waits by one Backoff.
type waits struct {
	max time.Duration
	exp *backoff.ExponentialBackOff
}

func (b Backoff) start() waits {
	return waits{max: b.Max, exp: backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(b.Initial),
		backoff.WithMaxInterval(b.Max),
		backoff.WithMultiplier(2),
		backoff.WithRandomizationFactor(0.2),
		backoff.WithMaxElapsedTime(0), // its default ends after 15 minutes
	)}
}

// nth is how long to wait after the nth failure in a row, 1 being the first.
func (b Backoff) nth(n int) (d time.Duration) {
	w := b.start()
	for range min(max(n, 1), nthMax) {
		d = w.next()
	}
	return d
}

// nthMax is when any sequence of waits has come to its longest: they double.
const nthMax = 64

// started tells whether w came from Backoff.start.
func (w *waits) started() bool { return w.exp != nil }

// next is how long to wait now.
func (w *waits) next() time.Duration { return min(w.exp.NextBackOff(), w.max) }

// sleep waits for d, or until ctx ends, and tells whether it waited to the end.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
