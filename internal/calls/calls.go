// Package calls counts the calls of Deliver that are under way, so that a sink
// can be closed beside them.
package calls

import (
	"context"
	"sync"
)

// Calls of one sink. Make it with New. Its methods may be called by several
// goroutines at once.
type Calls struct {
	closing context.Context
	cut     context.CancelFunc

	mu     sync.Mutex
	closed bool
	calls  sync.WaitGroup
	ended  chan struct{} // closed when all is over after Close
}

// New returns the calls of a sink that is open.
func New() *Calls {
	c := &Calls{ended: make(chan struct{})}
	c.closing, c.cut = context.WithCancel(context.Background())
	return c
}

// Begin counts a call, until done is called. It returns false when the sink is
// closed; done is nil then. The context that it returns also ends when the sink
// is closed.
func (c *Calls) Begin(ctx context.Context) (within context.Context, done func(), ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ctx, nil, false
	}
	c.calls.Add(1)
	within, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(c.closing, cancel)
	return within, func() {
		stop()
		cancel()
		c.calls.Done()
	}, true
}

// Close lets no call begin any more, cuts off those that are under way, waits for
// them, and then calls finish, once however often Close is called. It returns nil
// after that, or ctx's error if that ended first; the calls end all the same.
func (c *Calls) Close(ctx context.Context, finish func()) error {
	c.mu.Lock()
	first := !c.closed
	c.closed = true
	c.mu.Unlock()
	if first {
		c.cut()
		go func() {
			defer close(c.ended)
			c.calls.Wait()
			finish()
		}()
	}
	select {
	case <-c.ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
