package calls

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

func TestCloseCutsCallsOffAndWaitsForThem(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, finished := New(), 0
		within, done, ok := c.Begin(t.Context())
		if !ok || within.Err() != nil {
			t.Fatal(ok, within.Err())
		}
		closed := make(chan error, 2)
		for range 2 {
			go func() { closed <- c.Close(t.Context(), func() { finished++ }) }()
		}
		<-within.Done()
		synctest.Wait()
		if len(closed) != 0 || finished != 0 {
			t.Error("closed while a call is under way")
		}
		if _, _, ok := c.Begin(t.Context()); ok {
			t.Error("a call began after Close")
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if err := c.Close(gone, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("Close with a context that has ended: %v", err)
		}
		done()
		for range 2 {
			if err := <-closed; err != nil {
				t.Error(err)
			}
		}
		if finished != 1 {
			t.Errorf("finished %d times", finished)
		}
	})
}

func TestACallEndsWithItsOwnContext(t *testing.T) {
	t.Parallel()
	c := New()
	ctx, cancel := context.WithCancel(t.Context())
	within, done, _ := c.Begin(ctx)
	cancel()
	<-within.Done()
	done()
	if err := c.Close(t.Context(), func() {}); err != nil {
		t.Error(err)
	}
}
