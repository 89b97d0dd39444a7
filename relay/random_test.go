package relay_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/relay"
	"github.com/gooutbox/outbox/store/memory"
)

// TestRandomHistories lets two relays deliver to a moody sink from a store that
// fails, loses answers and freezes them, and checks the promises of the
// package.
func TestRandomHistories(t *testing.T) {
	t.Parallel()
	rounds := uint64(30)
	if testing.Short() {
		rounds = 6
	}
	for seed := range rounds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { newHistory(t, seed).run() })
		})
	}
}

// history is one random run. Its random numbers are drawn under its lock.
type history struct {
	t     *testing.T
	store *memory.Store
	caps  core.Capabilities

	mu        sync.Mutex
	rnd       *rand.Rand
	calm      bool                     // no more faults
	frozen    time.Time                // until then what the holder does hangs
	placed    map[core.Position]string // what was read and is not known to be done
	first     map[string][]string      // per key, ids in the order of their first arrival
	arrived   map[string]bool
	inCall    map[string]int
	sent      int
	takeOvers int
}

func newHistory(t *testing.T, seed uint64) *history {
	h := &history{
		t: t, rnd: rand.New(rand.NewPCG(seed, 7)), placed: map[core.Position]string{},
		first: map[string][]string{}, arrived: map[string]bool{}, inCall: map[string]int{},
	}
	h.caps = core.Capabilities{PrefixPerKey: seed%2 == 0, MaxBatch: []int{0, 7, 40}[seed%3]}
	h.store = memory.New(memory.Config{Fault: h.fault, Lost: h.fault})
	return h
}

// chance is true once in n times, unless all is calm.
func (h *history) chance(n int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.calm && h.rnd.IntN(n) == 0
}

func (h *history) upTo(d time.Duration) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Duration(h.rnd.Int64N(int64(d)))
}

var errFault = errors.New("a fault")

func (h *history) fault(op string) error {
	h.mu.Lock()
	frozen := time.Until(h.frozen)
	h.mu.Unlock()
	switch {
	case op == memory.OpAppend || op == memory.OpCommit || op == memory.OpLag:
		return nil
	case frozen > 0 && op != memory.OpAcquire:
		time.Sleep(frozen)
	case h.chance(25):
		return errFault
	case h.chance(70):
		time.Sleep(h.upTo(3 * time.Second))
	case h.chance(150):
		time.Sleep(h.upTo(time.Minute)) // frozen beyond its lease
	}
	return nil
}

const (
	historyEvents = 600
	historyKeys   = 25
)

func (h *history) run() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var relays sync.WaitGroup
	for i := range 2 {
		r, err := relay.New(relay.Config{
			Log: checkedLog{h.store, h}, Sinks: map[string]core.Sink{"s": h},
			Routes:      []relay.Route{{Name: "r", Sink: "s", Window: 100, BatchEvents: 50, Lanes: 1 + i*3}},
			Owner:       fmt.Sprint("relay ", i),
			CursorLease: 5 * time.Second, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			h.t.Fatal(err)
		}
		relays.Go(func() {
			if err := r.Run(ctx); err != nil {
				h.t.Error(err)
			}
		})
	}
	counts := map[string]int{}
	for i := range historyEvents {
		key := fmt.Sprint("k", min(int(h.upTo(historyKeys)), int(h.upTo(historyKeys)))) // some are busier
		counts[key]++
		f := memory.Foreign{Event: core.Event{ID: fmt.Sprint(key, "/", counts[key]), AggregateID: key, Type: "t"}}
		if i%97 == 5 {
			f.Err = errors.New("no event")
		}
		h.store.Put(f)
		if h.chance(3) {
			time.Sleep(h.upTo(2 * time.Second))
		}
		if i == historyEvents/2 {
			h.mu.Lock()
			h.frozen = time.Now().Add(30 * time.Second)
			h.mu.Unlock()
		}
	}
	time.Sleep(10 * time.Minute)
	h.mu.Lock()
	h.calm = true
	h.mu.Unlock()
	time.Sleep(30 * time.Minute)
	cancel()
	relays.Wait()
	h.check(counts)
}

// check looks at the end: nothing is lost, and each key is in order.
func (h *history) check(counts map[string]int) {
	failed := map[string]bool{}
	for _, j := range h.store.Parked() {
		failed[j.Event.ID] = true
	}
	for key, n := range counts {
		last := 0
		for _, id := range h.first[key] {
			var i int
			_, _ = fmt.Sscanf(id, key+"/%d", &i)
			if i < last {
				h.t.Errorf("%s arrived after %s/%d", id, key, last)
			}
			last = i
		}
		for i := range n {
			if id := fmt.Sprint(key, "/", i+1); !h.arrived[id] && !failed[id] {
				h.t.Errorf("%s was lost", id)
			}
		}
	}
	if h.sent < historyEvents/2 || h.takeOvers < 2 || len(failed) == 0 {
		h.t.Errorf("a dull history: %d sent, %d take-overs, %d failed", h.sent, h.takeOvers, len(failed))
	}
	if lag, err := h.store.Lag(context.Background(), "r"); err != nil || lag.Events != 0 {
		h.t.Errorf("lag at the end: %+v, %v", lag, err)
	}
}

func (h *history) Capabilities() core.Capabilities { return h.caps }
func (h *history) Close(context.Context) error     { return nil }

// Deliver answers at random, but keeps the rules of core.Sink.
func (h *history) Deliver(ctx context.Context, leases []core.Lease) []core.Result {
	fence := leases[0].Fence
	h.enter(leases, fence, 1)
	defer h.enter(leases, fence, -1)
	results := make([]core.Result, len(leases))
	if h.chance(15) {
		for i := range results {
			results[i] = core.Result{Outcome: core.Unavailable, Err: errFault}
		}
		return results
	}
	if h.chance(150) {
		panic("a moody sink")
	}
	if h.chance(100) {
		time.Sleep(h.upTo(20 * time.Second)) // frozen, deaf to ctx
	}
	stopped := map[string]bool{}
	for i := range leases {
		e := &leases[i].Event
		if stopped[e.AggregateID] {
			continue
		}
		results[i] = h.answer(e)
		stopped[e.AggregateID] = results[i].Outcome != core.Delivered
	}
	select {
	case <-time.After(h.upTo(200 * time.Millisecond)):
	case <-ctx.Done():
	}
	return results
}

// enter notes that a term's call with these keys begins or ends.
func (h *history) enter(leases []core.Lease, fence uint64, by int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	seen := map[string]bool{}
	for i := range leases {
		key := leases[i].Event.AggregateID
		if seen[key] {
			continue
		}
		seen[key] = true
		call := fmt.Sprint(fence, key)
		h.inCall[call] += by
		if h.inCall[call] > 1 {
			h.t.Errorf("two calls with key %s at the same time", key)
		}
	}
}

func (h *history) answer(e *core.Event) core.Result {
	if len(e.ID)%5 == 0 && e.ID[len(e.ID)-1] == '7' {
		return core.Result{Outcome: core.Rejected, Err: errFault}
	}
	switch {
	case h.chance(20):
		return core.Result{Outcome: core.Refused, Err: errFault}
	case h.chance(50):
		return core.Result{Outcome: core.Throttled, Err: errFault, RetryAfter: time.Second}
	case h.chance(70):
		return core.Result{Outcome: core.Unavailable, Err: errFault}
	case h.chance(40):
		if h.chance(2) {
			h.arrive(e)
		}
		return core.Result{Outcome: core.Unknown, Err: errFault}
	case h.chance(60):
		return core.Result{}
	}
	h.arrive(e)
	return core.Result{Outcome: core.Delivered}
}

func (h *history) arrive(e *core.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sent++
	if !h.arrived[e.ID] {
		h.arrived[e.ID] = true
		h.first[e.AggregateID] = append(h.first[e.AggregateID], e.ID)
	}
}

// checkedLog checks that no position passes an event that neither arrived nor
// was set aside.
type checkedLog struct {
	core.Log
	h *history
}

func (l checkedLog) Acquire(ctx context.Context, req core.AcquireRequest) (core.Cursor, error) {
	c, err := l.Log.Acquire(ctx, req)
	if err != nil {
		return nil, err
	}
	l.h.mu.Lock()
	defer l.h.mu.Unlock()
	l.h.takeOvers++
	return checkedCursor{c, l.h}, nil
}

type checkedCursor struct {
	core.Cursor
	h *history
}

func (c checkedCursor) Read(ctx context.Context, limit core.ReadLimit) (core.Batch, error) {
	b, err := c.Cursor.Read(ctx, limit)
	c.h.mu.Lock()
	defer c.h.mu.Unlock()
	for _, e := range b.Entries {
		c.h.placed[e.Mark.Position()] = e.Event.ID
	}
	return b, err
}

func (c checkedCursor) Save(ctx context.Context, marks []core.Mark) error {
	failed := map[string]bool{}
	for _, j := range c.h.store.Parked() {
		failed[j.Event.ID] = true
	}
	last := marks[len(marks)-1].Position()
	c.h.mu.Lock()
	for pos, id := range c.h.placed {
		if pos.Compare(last) > 0 {
			continue
		}
		if !c.h.arrived[id] && !failed[id] {
			c.h.t.Errorf("the position passes %s", id)
		}
		delete(c.h.placed, pos)
	}
	c.h.mu.Unlock()
	return c.Cursor.Save(ctx, marks)
}
