package relay_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
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
// package: without a queue, and with one under both policies.
func TestRandomHistories(t *testing.T) {
	t.Parallel()
	rounds := uint64(12)
	if testing.Short() {
		rounds = 3
	}
	for _, mode := range []string{"waiting", "skip", "hold"} {
		for seed := range rounds {
			t.Run(fmt.Sprint(mode, ", seed ", seed), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { newHistory(t, seed, mode).run() })
			})
		}
	}
}

// history is one random run. Its random numbers are drawn under its lock.
type history struct {
	t     *testing.T
	store *memory.Store
	caps  core.Capabilities
	mode  string // waiting, skip or hold

	mu        sync.Mutex
	rnd       *rand.Rand
	calm      bool                     // no more faults
	frozen    time.Time                // until then what the holder does hangs
	placed    map[core.Position]string // what was read and is not known to be done
	first     map[string][]string      // per key, ids in the order of their first arrival
	arrived   map[string]bool
	inCall    map[string]int
	sick      map[string]time.Time // keys that are refused until then
	gaveUp    map[string]bool      // ids that failed at some time
	sent      int
	claims    int
	takeOvers int
}

func newHistory(t *testing.T, seed uint64, mode string) *history {
	h := &history{
		t: t, mode: mode, rnd: rand.New(rand.NewPCG(seed, 7)), placed: map[core.Position]string{},
		first: map[string][]string{}, arrived: map[string]bool{}, inCall: map[string]int{},
		sick: map[string]time.Time{}, gaveUp: map[string]bool{},
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
	case op == memory.OpAppend || op == memory.OpCommit || op == memory.OpLag || op == memory.OpAdmin:
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
		cfg := relay.Config{
			Log: checkedLog{h.store, h}, Sinks: map[string]core.Sink{"s": h},
			Routes: []relay.Route{{
				Name: "r", Sink: "s", Window: 100, BatchEvents: 50, Lanes: 1 + i*3,
				MaxAttempts: 3, MaxParked: 30, Backoff: relay.Backoff{Max: 10 * time.Second},
			}},
			Owner:       fmt.Sprint("relay ", i),
			CursorLease: 5 * time.Second, Logger: slog.New(slog.DiscardHandler),
		}
		if h.mode != "waiting" {
			cfg.Queue = h.store
		}
		if h.mode == "hold" {
			cfg.Routes[0].OnFailure = relay.Hold
		}
		r, err := relay.New(cfg)
		if err != nil {
			h.t.Fatal(err)
		}
		relays.Go(func() {
			if err := r.Run(ctx); err != nil {
				h.t.Error(err)
			}
		})
	}
	if h.mode != "waiting" {
		relays.Go(func() { h.operate(ctx) })
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
	jobs, _, err := h.store.Jobs(context.Background(), core.JobFilter{Cursor: "r"}, "", 0)
	if err != nil {
		h.t.Fatal(err)
	}
	parked := 0
	for _, j := range jobs {
		failed[j.EventID] = j.State == core.JobFailed || j.Result == "discarded"
		if !j.State.Final() || j.Holds {
			h.t.Errorf("%s is %s at the end", j.EventID, j.State)
		}
		if j.State == core.JobCompleted {
			parked++
		}
	}
	if h.mode != "waiting" && (parked < 20 || h.claims < 20) {
		h.t.Errorf("a dull history: %d events were parked and delivered, %d claims", parked, h.claims)
	}
	for key, n := range counts {
		last := 0
		for _, id := range h.first[key] {
			var i int
			_, _ = fmt.Sscanf(id, key+"/%d", &i)
			if h.gaveUp[id] {
				continue // it left the order
			}
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
	case h.isSick(e.AggregateID) || h.chance(20):
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

// isSick tells whether the key is one that is refused for a while.
func (h *history) isSick(key string) bool {
	begins := h.chance(150)
	h.mu.Lock()
	defer h.mu.Unlock()
	if begins {
		h.sick[key] = time.Now().Add(time.Duration(h.rnd.Int64N(int64(time.Minute))))
	}
	return time.Now().Before(h.sick[key]) && !h.calm
}

// operate takes back leases as any process does, and retries and discards what
// failed as people do. What still holds a key when all is calm is discarded.
func (h *history) operate(ctx context.Context) {
	act := core.Act{By: "operator"}
	for ctx.Err() == nil {
		_, _ = h.store.TakeBack(ctx, core.TakeBackRequest{MaxRedeliveries: 1000})
		if h.chance(8) || h.isCalm() {
			for _, id := range h.noteFailed() {
				filter := core.JobFilter{IDs: []string{id}, State: core.JobFailed}
				var err error
				switch {
				case h.chance(2):
					_, err = h.store.Retry(ctx, filter, act)
				case h.mode == "hold" && (h.isCalm() || h.chance(4)):
					_, err = h.store.Discard(ctx, filter, act)
				}
				if err != nil && ctx.Err() == nil {
					h.t.Error(err)
				}
			}
		}
		select {
		case <-time.After(2 * time.Second):
		case <-ctx.Done():
		}
	}
}

func (h *history) isCalm() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.calm
}

// noteFailed returns the failed jobs, which have left the order of their keys.
func (h *history) noteFailed() (ids []string) {
	jobs, _, err := h.store.Jobs(context.Background(), core.JobFilter{Cursor: "r", State: core.JobFailed}, "", 0)
	if err != nil {
		h.t.Error(err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, j := range jobs {
		h.gaveUp[j.EventID] = true
		ids = append(ids, j.ID)
	}
	return ids
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

// ClaimJobs checks that no other job of a key is lent at the same time.
func (c checkedCursor) ClaimJobs(ctx context.Context, asked []core.OpenJob, lease time.Duration) ([]*core.Claimed, error) {
	claimed, err := c.Cursor.ClaimJobs(ctx, asked, lease)
	won, mine, keys := map[string]bool{}, map[string]bool{}, map[string]int{}
	for _, one := range claimed {
		won[one.ID] = true
		keys[one.Lease.Event.AggregateID]++
	}
	gaps := map[string]bool{} // what is behind one is given back, and not sent
	for _, o := range asked {
		gaps[o.Key] = gaps[o.Key] || !won[o.ID]
		mine[o.ID] = !gaps[o.Key]
	}
	for key, n := range keys {
		if n > 1 && !c.h.caps.PrefixPerKey {
			c.h.t.Errorf("%d jobs of key %s lent at once", n, key)
		}
	}
	active, _, listErr := c.h.store.Jobs(context.Background(), core.JobFilter{Cursor: "r", State: core.JobActive}, "", 0)
	if listErr != nil {
		c.h.t.Error(listErr)
	}
	// The answer may have come late: what counts are leases that still run. Those
	// of one claim end together. What a person retried has left the order, and is
	// the head of its key for one holder and not there for a former one.
	c.h.mu.Lock()
	active = slices.DeleteFunc(active, func(j core.JobInfo) bool {
		return !time.Now().Before(j.LeaseUntil) || c.h.gaveUp[j.EventID]
	})
	c.h.mu.Unlock()
	until := map[string]core.JobInfo{}
	for _, j := range active {
		if mine[j.ID] {
			until[j.AggregateID] = j
		}
	}
	for _, j := range active {
		own, there := until[j.AggregateID]
		if there && (j.Owner != own.Owner || !j.LeaseUntil.Equal(own.LeaseUntil)) {
			c.h.t.Errorf("job %s is lent while %s is", j.ID, own.ID)
		}
	}
	c.h.mu.Lock()
	defer c.h.mu.Unlock()
	c.h.claims += len(claimed)
	return claimed, err
}
