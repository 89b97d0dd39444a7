package relay_test

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/relay"
)

// working makes the kit's relay one of a worker for the sink "s", with no route.
func working(edits ...func(*relay.Worker)) func(*relay.Config) {
	return func(c *relay.Config) {
		w := relay.Worker{Sink: "s"}
		for _, edit := range edits {
			edit(&w)
		}
		c.Queue, c.Log, c.Routes, c.Workers = c.Log.(core.Queue), nil, nil, []relay.Worker{w}
	}
}

// through makes the relay use another queue, such as one that can be cut off.
func through(q core.Queue) func(*relay.Config) {
	return func(c *relay.Config) { c.Queue = q }
}

// worker is the status of the only worker.
func (r *running) worker() relay.WorkerStatus { return r.Status().Workers[0] }

// job makes a job whose event has a key of its own.
func job(id string, edits ...func(*core.Job)) core.Job {
	j := core.Job{Event: core.Event{ID: id, AggregateID: id, Type: "t", Payload: []byte(`{}`)}, Sink: "s"}
	for _, edit := range edits {
		edit(&j)
	}
	return j
}

func prio(p core.Priority) func(*core.Job) { return func(j *core.Job) { j.Priority = p } }
func tenant(name string) func(*core.Job)   { return func(j *core.Job) { j.Tenant = name } }
func tries(n int) func(*core.Job)          { return func(j *core.Job) { j.MaxAttempts = n } }

func jobs(prefix string, n int, edits ...func(*core.Job)) []core.Job {
	all := make([]core.Job, n)
	for i := range all {
		all[i] = job(prefix+strconv.Itoa(i+1), edits...)
	}
	return all
}

// enqueue returns the ids of the jobs, in order.
func (k *kit) enqueue(all ...core.Job) []string {
	k.t.Helper()
	var ids []string
	err := k.store.InTransaction(k.t.Context(), func(ctx context.Context) error {
		receipts, err := k.store.Enqueue(ctx, all...)
		ids = nil
		for _, r := range receipts {
			ids = append(ids, r.ID)
		}
		return err
	})
	if err != nil {
		k.t.Fatal(err)
	}
	return ids
}

// info is a job as people see it.
func (k *kit) info(id string) core.JobInfo {
	k.t.Helper()
	info, err := k.store.Job(k.t.Context(), id)
	if err != nil {
		k.t.Fatal(err)
	}
	return info
}

func (k *kit) stats() core.Stats {
	k.t.Helper()
	s, err := k.store.Stats(k.t.Context())
	if err != nil {
		k.t.Fatal(err)
	}
	return s
}

// counts checks how many jobs are in each state.
func (k *kit) counts(what string, ready, active, completed, failed int64) {
	k.t.Helper()
	s := k.stats()
	equal(k.t, what+": ready or delayed", s.Ready+s.Delayed, ready)
	equal(k.t, what+": active", s.Active, active)
	equal(k.t, what+": completed", s.Completed, completed)
	equal(k.t, what+": failed", s.Failed, failed)
}

// line is the queue as one process sees it, until it is cut. Then no call of it
// ends before its context does, as if the process had died or the network were
// gone.
type line struct {
	core.Queue
	mu  sync.Mutex
	cut bool
	// calls counts by method.
	calls map[string]int
}

func newLine(q core.Queue) *line { return &line{Queue: q, calls: map[string]int{}} }

func (l *line) sever() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = true
}

func (l *line) mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = false
}

func (l *line) count(method string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.calls[method]
}

// all counts the calls of all methods.
func (l *line) all() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, of := range l.calls {
		n += of
	}
	return n
}

func (l *line) enter(ctx context.Context, method string) error {
	l.mu.Lock()
	l.calls[method]++
	cut := l.cut
	l.mu.Unlock()
	if cut {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func (l *line) Claim(ctx context.Context, req core.ClaimRequest) ([]*core.Claimed, error) {
	if err := l.enter(ctx, "claim"); err != nil {
		return nil, err
	}
	return l.Queue.Claim(ctx, req)
}

func (l *line) Extend(ctx context.Context, all []*core.Claimed, d time.Duration) ([]*core.Claimed, error) {
	if err := l.enter(ctx, "extend"); err != nil {
		return nil, err
	}
	return l.Queue.Extend(ctx, all, d)
}

func (l *line) Settle(ctx context.Context, all []core.Settlement) ([]*core.Claimed, error) {
	if err := l.enter(ctx, "settle"); err != nil {
		return nil, err
	}
	return l.Queue.Settle(ctx, all)
}

func (l *line) TakeBack(ctx context.Context, req core.TakeBackRequest) (core.TakeBackResult, error) {
	if err := l.enter(ctx, "take back"); err != nil {
		return core.TakeBackResult{}, err
	}
	return l.Queue.TakeBack(ctx, req)
}

func (l *line) NextDue(ctx context.Context, sink string, tenants []string) (time.Duration, bool, error) {
	if err := l.enter(ctx, "next due"); err != nil {
		return 0, false, err
	}
	return l.Queue.NextDue(ctx, sink, tenants)
}

func (l *line) Pauses(ctx context.Context) ([]core.Pause, error) {
	if err := l.enter(ctx, "pauses"); err != nil {
		return nil, err
	}
	return l.Queue.Pauses(ctx)
}

func (l *line) Tenants(ctx context.Context, sink, after string, limit int) ([]string, error) {
	if err := l.enter(ctx, "tenants"); err != nil {
		return nil, err
	}
	return l.Queue.Tenants(ctx, sink, after, limit)
}

// unwatched is a queue whose store can't tell of changes.
type unwatched struct{ core.Queue }

func (unwatched) Watch(context.Context, func(core.Wake)) error { return core.ErrNoWatch }

// slow lets each call to the sink take so long.
func slow(d time.Duration) func(context.Context, []core.Lease) {
	return func(ctx context.Context, _ []core.Lease) {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
}
