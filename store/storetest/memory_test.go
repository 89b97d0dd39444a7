package storetest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/store/memory"
	"github.com/gooutbox/outbox/store/storetest"
)

func TestMemoryStoreConforms(t *testing.T) {
	storetest.Run(t, memoryHarness())
}

// errLost is what a broken read of the memory store fails with.
var errLost = errors.New("the connection is lost")

// faulty is a memory store whose next read can be made to fail.
type faulty struct {
	*memory.Store
	broken chan struct{}
}

func newFaulty() *faulty {
	f := &faulty{broken: make(chan struct{}, 1)}
	f.Store = memory.New(memory.Config{Idle: 20 * time.Millisecond, Fault: func(op string) error {
		if op != memory.OpRead {
			return nil
		}
		select {
		case <-f.broken:
			return errLost
		default:
			return nil
		}
	}})
	return f
}

// memoryHarness describes the memory store. Its stores are *faulty.
func memoryHarness() storetest.Harness {
	return harnessOf(func(*testing.T) storetest.Store { return newFaulty() },
		func(s storetest.Store) *faulty { return s.(*faulty) })
}

// harnessOf describes stores that are built on a memory store.
func harnessOf(build func(*testing.T) storetest.Store, inner func(storetest.Store) *faulty) storetest.Harness {
	return storetest.Harness{
		New: build,
		Count: func(ctx context.Context, s storetest.Store, key string) (int64, error) {
			return inner(s).Increment(ctx, key)
		},
		Put: func(_ context.Context, s storetest.Store, docs ...storetest.Document) error {
			return putInto(inner(s).Store, docs)
		},
		Failed: func(_ context.Context, s storetest.Store, cursor string) ([]storetest.Failed, error) {
			var failed []storetest.Failed
			for _, j := range inner(s).Parked() {
				if j.Cursor == cursor {
					failed = append(failed, storetest.Failed{
						Event: j.Event, Sink: j.Sink, Attempts: j.Attempts, Failure: j.Failure,
					})
				}
			}
			return failed, nil
		},
		// A place in the memory store can't get lost.
		LoseToken: func(context.Context, storetest.Store, string) error { return nil },
		BreakRead: func(_ context.Context, s storetest.Store) error {
			inner(s).broken <- struct{}{}
			return nil
		},
		Lease: 200 * time.Millisecond,
	}
}

// putInto adds documents to a memory store beside Append.
func putInto(s *memory.Store, docs []storetest.Document) error {
	for _, d := range docs {
		f := memory.Foreign{Event: d.Event, Published: d.Published}
		if d.Age > 0 {
			f.WrittenAt = time.Now().Add(-d.Age)
		}
		if d.Undecodable {
			f.Event, f.Err = core.Event{ID: d.Event.ID}, errors.New("the document has no event_type")
		}
		s.Put(f)
	}
	return nil
}
