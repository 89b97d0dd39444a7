package outboxtest

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/store/memory"
)

// Recorder is an outbox in memory that remembers what was committed. Its methods
// may be called by several goroutines at once.
type Recorder struct {
	store *memory.Store

	mu     sync.Mutex
	events []core.Event
	jobs   []core.Job
}

// NewRecorder returns a recorder of an empty store.
func NewRecorder() *Recorder { return &Recorder{store: memory.New(memory.Config{})} }

// Store is where the events and jobs are, for Drain, and for what operators ask.
func (r *Recorder) Store() *memory.Store { return r.store }

// written is what one transaction has appended and enqueued.
type written struct {
	recorder *Recorder
	mu       sync.Mutex
	events   []core.Event
	jobs     []core.Job
}

type writtenKey struct{}

// InTransaction runs fn and commits what it appended and enqueued with the
// context that it was given, if fn returns nil. Otherwise nothing of it is
// recorded. Within a transaction it joins that one.
func (r *Recorder) InTransaction(ctx context.Context, fn func(ctx context.Context) error) error {
	if w, ok := ctx.Value(writtenKey{}).(*written); ok && w.recorder == r {
		return r.store.InTransaction(ctx, fn)
	}
	var last *written
	err := r.store.InTransaction(ctx, func(ctx context.Context) error {
		last = &written{recorder: r} // the function may be run again
		return fn(context.WithValue(ctx, writtenKey{}, last))
	})
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, last.events...)
	r.jobs = append(r.jobs, last.jobs...)
	return nil
}

// Append is that of a store: it validates the events, and refuses with
// core.ErrNoTransaction outside of InTransaction.
func (r *Recorder) Append(ctx context.Context, events ...core.Event) error {
	if err := r.store.Append(ctx, events...); err != nil {
		return err
	}
	if w, ok := ctx.Value(writtenKey{}).(*written); ok {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, e := range events {
			w.events = append(w.events, copyOf(e))
		}
	}
	return nil
}

// Enqueue is that of a store. Duplicates are told in the receipts and not
// recorded.
func (r *Recorder) Enqueue(ctx context.Context, jobs ...core.Job) ([]core.Receipt, error) {
	receipts, err := r.store.Enqueue(ctx, jobs...)
	if err != nil {
		return nil, err
	}
	if w, ok := ctx.Value(writtenKey{}).(*written); ok {
		w.mu.Lock()
		defer w.mu.Unlock()
		for i, j := range jobs {
			if !receipts[i].Duplicate {
				j.Event = copyOf(j.Event)
				w.jobs = append(w.jobs, j)
			}
		}
	}
	return receipts, nil
}

// copyOf is an event that its caller can't change any more.
func copyOf(e core.Event) core.Event {
	e.Payload, e.Headers = slices.Clone(e.Payload), maps.Clone(e.Headers)
	return e
}

// Events are the events of committed transactions, in the order of the commits,
// as they were appended.
func (r *Recorder) Events() []core.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// Jobs are the jobs of committed transactions, as Events.
func (r *Recorder) Jobs() []core.Job {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.jobs)
}

// Reset forgets what was recorded, so that the next assertion sees only what
// comes now. The store keeps it.
func (r *Recorder) Reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events, r.jobs = nil, nil
}

// AssertAppended fails the test unless exactly these events were committed, in
// this order, since Reset. With none it asserts that nothing was. It returns
// whether that is so.
func (r *Recorder) AssertAppended(t T, want ...Matcher[core.Event]) bool {
	t.Helper()
	return assert(t, "appended events", r.Events(), want, eventText)
}

// AssertEnqueued is AssertAppended for jobs.
func (r *Recorder) AssertEnqueued(t T, want ...Matcher[core.Job]) bool {
	t.Helper()
	return assert(t, "enqueued jobs", r.Jobs(), want, jobText)
}
