package storetest_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/store/memory"
	"github.com/gooutbox/outbox/store/storetest"
)

func TestMemoryQueueConforms(t *testing.T) {
	storetest.RunQueue(t, queueHarness(newClocked))
}

// clocked is a memory store whose clock can be put forward.
type clocked struct {
	*memory.Store
	ahead *atomic.Int64
	// queue and admin replace the store's own where it is broken.
	queue storetest.Queue
	admin core.Admin
	// onSkew, if set, makes the queue of a process whose clock is ahead.
	onSkew func(d time.Duration) storetest.Queue
	// onAcquire, if set, replaces a term.
	onAcquire func(core.Cursor) core.Cursor
}

func (c *clocked) Acquire(ctx context.Context, req core.AcquireRequest) (core.Cursor, error) {
	term, err := c.Store.Acquire(ctx, req)
	if err == nil && c.onAcquire != nil {
		term = c.onAcquire(term)
	}
	return term, err
}

func newClocked() *clocked {
	ahead := &atomic.Int64{}
	s := memory.New(memory.Config{
		Idle: 20 * time.Millisecond,
		Now:  func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) },
	})
	return &clocked{Store: s, ahead: ahead, queue: s, admin: s}
}

// queueHarness describes stores that are built on a memory store.
func queueHarness(build func() *clocked) storetest.Harness {
	of := func(s storetest.Store) *clocked { return s.(*clocked) }
	return storetest.Harness{
		New:   func(*testing.T) storetest.Store { return build() },
		Queue: func(s storetest.Store) storetest.Queue { return of(s).queue },
		Admin: func(s storetest.Store) core.Admin { return of(s).admin },
		Elapse: func(_ context.Context, s storetest.Store, d time.Duration) error {
			of(s).ahead.Add(int64(d))
			return nil
		},
		Skewed: func(_ *testing.T, s storetest.Store, d time.Duration) storetest.Store {
			other := *of(s)
			if other.onSkew != nil {
				other.queue = other.onSkew(d)
			}
			return &other
		},
		Put: func(_ context.Context, s storetest.Store, docs ...storetest.Document) error {
			return putInto(of(s).Store, docs)
		},
		PutJob: func(_ context.Context, s storetest.Store, sink string) error {
			of(s).PutJob(memory.ForeignJob{Job: core.Job{Sink: sink}, Err: errors.New("the document has no event_type")})
			return nil
		},
		Failed: func(_ context.Context, s storetest.Store, cursor string) ([]storetest.Failed, error) {
			var failed []storetest.Failed
			for _, j := range of(s).Parked() {
				if j.Cursor == cursor {
					failed = append(failed, storetest.Failed{Event: j.Event, Sink: j.Sink, Attempts: j.Attempts, Failure: j.Failure})
				}
			}
			return failed, nil
		},
	}
}
