package tests

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// background runs a function until it returns, or stop or the end of the test
// cancels its context.
func background(t *testing.T, run func(ctx context.Context)) (ended <-chan struct{}, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return done, cancel
}

// every waits for d and tells whether ctx still runs: the head of a loop that
// does something again and again.
func every(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// eventually waits until a condition holds. what completes the sentence that
// tells that it never did.
func eventually(t *testing.T, within time.Duration, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	for !holds() {
		if !every(ctx, 10*time.Millisecond) {
			require.FailNow(t, "waited too long", "%s did not happen within %s", what, within)
		}
	}
}
