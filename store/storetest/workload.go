package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"

	"github.com/gooutbox/outbox/core"
)

// workload is a number of workers whose transactions each add one to the number
// of a key, and append events that carry it.
type workload struct {
	workers, each, keys int
}

// eventsOf is how many events the transaction appends that made a key's number n.
func eventsOf(n int64) int { return 1 + int(n%3) }

// running is a workload under way.
type running struct {
	k    *kit
	done chan struct{}

	mu   sync.Mutex
	last map[string]int64 // the highest committed number of each key
}

// startWorkload starts the workers. About one transaction in five aborts.
func (k *kit) startWorkload(w workload) *running {
	r := &running{k: k, done: make(chan struct{}), last: map[string]int64{}}
	var workers sync.WaitGroup
	for i := range w.workers {
		random := rand.New(rand.NewPCG(k.h.Seed, uint64(i)))
		workers.Go(func() {
			for range w.each {
				r.transact(fmt.Sprintf("key-%d", random.IntN(w.keys)), random.IntN(5) == 0)
			}
		})
	}
	go func() {
		workers.Wait()
		close(r.done)
	}()
	k.Cleanup(func() { <-r.done })
	return r
}

func (r *running) transact(key string, abort bool) {
	k, n, kind := r.k, int64(0), "committed"
	if abort {
		kind = "aborted"
	}
	err := k.store.InTransaction(k.ctx, func(ctx context.Context) error {
		var err error
		if n, err = k.h.Count(ctx, k.store, key); err != nil {
			return err
		}
		events := make([]core.Event, eventsOf(n))
		for i := range events {
			events[i] = core.Event{AggregateID: key, Type: kind, AggregateVersion: n, Version: i}
		}
		if err := k.store.Append(ctx, events...); err != nil {
			return err
		}
		if abort {
			return errAbort
		}
		return nil
	})
	switch {
	case err == nil:
		r.mu.Lock()
		r.last[key] = max(r.last[key], n)
		r.mu.Unlock()
	case !abort || !errors.Is(err, errAbort):
		k.Errorf("transaction on %s: %v", key, err)
	}
}

// wait returns when all workers are done.
func (r *running) wait() { <-r.done }

// over tells whether all workers are done.
func (r *running) over() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// committed returns the highest committed number of each key so far.
func (r *running) committed() map[string]int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.last)
}

// ledger checks the events of a workload as they are read: each key's numbers
// come one after the other, each with all its events. A gap is a loss or a
// wrong order, a number again is a repeat.
type ledger struct {
	k    *kit
	last map[string]int64
	next map[string]int // the event that comes next of the number after last
}

func newLedger(k *kit) *ledger {
	return &ledger{k: k, last: map[string]int64{}, next: map[string]int{}}
}

func (l *ledger) take(entries []core.Entry) {
	l.k.Helper()
	for _, e := range entries {
		key := e.Event.AggregateID
		if e.Event.Type == "aborted" {
			l.k.Fatalf("%s: read an event of a transaction that was aborted", key)
		}
		n, i := l.last[key]+1, l.next[key]
		if e.Event.AggregateVersion != n || e.Event.Version != i {
			l.k.Fatalf("%s: read event %d of change %d, want event %d of change %d",
				key, e.Event.Version, e.Event.AggregateVersion, i, n)
		}
		if l.next[key]++; l.next[key] == eventsOf(n) {
			l.last[key], l.next[key] = n, 0
		}
	}
}

// complete tells whether the ledger has everything that was committed.
func (l *ledger) complete(committed map[string]int64) bool { return maps.Equal(l.last, committed) }
