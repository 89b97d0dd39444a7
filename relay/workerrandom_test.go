package relay_test

import (
	"context"
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

// TestRandomHistoriesOfJobs lets workers, of which one after the other is cut
// off, deliver jobs to a moody sink from a store that fails and loses
// answers. It checks that nothing is lost, that attempts stay within their limit
// and that no token is used twice.
func TestRandomHistoriesOfJobs(t *testing.T) {
	t.Parallel()
	rounds := uint64(12)
	if testing.Short() {
		rounds = 3
	}
	for seed := range rounds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { newJobHistory(t, seed).run() })
		})
	}
}

const (
	historyJobs      = 400
	historyProcesses = 8
	historyAttempts  = 4
)

// jobHistory is one random run.
type jobHistory struct {
	t     *testing.T
	store *memory.Store

	mu     sync.Mutex
	rnd    *rand.Rand
	calm   bool
	begun  map[string]map[int]int // by event and number of the attempt: calls
	counts map[string]int         // refusals that were answered
	tokens map[any]string         // by the handle of a lease: who got it
	given  map[string]int         // deliveries that were confirmed
	sent   int
}

func newJobHistory(t *testing.T, seed uint64) *jobHistory {
	h := &jobHistory{
		t: t, rnd: rand.New(rand.NewPCG(seed, 11)), begun: map[string]map[int]int{}, counts: map[string]int{},
		tokens: map[any]string{}, given: map[string]int{},
	}
	h.store = memory.New(memory.Config{Fault: h.fault, Lost: h.fault})
	return h
}

func (h *jobHistory) chance(n int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.calm && h.rnd.IntN(n) == 0
}

func (h *jobHistory) upTo(d time.Duration) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Duration(h.rnd.Int64N(int64(d)))
}

func (h *jobHistory) fault(op string) error {
	switch {
	case op == memory.OpEnqueue || op == memory.OpCommit || op == memory.OpAdmin:
		return nil
	case h.chance(12):
		return errFault
	case h.chance(40):
		time.Sleep(h.upTo(3 * time.Second))
	case h.chance(100):
		time.Sleep(h.upTo(40 * time.Second)) // beyond a lease
	}
	return nil
}

// seen is a queue that notes each lease that one process gets.
type seen struct {
	*line
	h    *jobHistory
	name string
}

func (q *seen) Claim(ctx context.Context, req core.ClaimRequest) ([]*core.Claimed, error) {
	got, err := q.line.Claim(ctx, req)
	q.h.mu.Lock()
	defer q.h.mu.Unlock()
	for _, c := range got {
		if by, twice := q.h.tokens[c.Ref]; twice {
			q.h.t.Errorf("%s and %s got job %s under one token", by, q.name, c.ID)
		}
		q.h.tokens[c.Ref] = q.name
		if c.Lease.Attempt > historyAttempts {
			q.h.t.Errorf("job %s is lent for attempt %d of %d", c.ID, c.Lease.Attempt, historyAttempts)
		}
	}
	return got, err
}

func (h *jobHistory) Close(context.Context) error { return nil }

func (h *jobHistory) Capabilities() core.Capabilities { return core.Capabilities{MaxBatch: 8} }

func (h *jobHistory) Deliver(ctx context.Context, leases []core.Lease) []core.Result {
	took := h.upTo(200 * time.Millisecond)
	if h.chance(40) {
		took = h.upTo(30 * time.Second)
	}
	select {
	case <-time.After(took):
	case <-ctx.Done():
	}
	results := make([]core.Result, len(leases))
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sent++
	for i := range leases {
		id := leases[i].Event.ID
		if h.begun[id] == nil {
			h.begun[id] = map[int]int{}
		}
		h.begun[id][leases[i].Attempt]++
		results[i] = core.Result{Outcome: core.Delivered}
		if ctx.Err() != nil {
			results[i] = outcome(core.Unknown)
			continue
		}
		if h.calm {
			h.given[id]++
			continue
		}
		switch n := h.rnd.IntN(40); {
		case n < 14:
			results[i] = outcome(core.Refused)
			h.counts[id]++
		case n == 14:
			results[i] = outcome(core.Unknown)
		case n == 15:
			results[i] = outcome(core.Unavailable)
		case n == 16:
			results[i] = core.Result{}
		case n == 17 && h.sent%7 == 0:
			results[i] = core.Result{Outcome: core.Throttled, RetryAfter: time.Second}
		case n == 18 && h.sent%50 == 0:
			results[i] = outcome(core.Rejected)
		default:
			h.given[id]++
		}
	}
	return results
}

func (h *jobHistory) run() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var relays sync.WaitGroup
	start := func(name string) *seen {
		q := &seen{line: newLine(h.store), h: h, name: name}
		r, err := relay.New(relay.Config{
			Queue: q, Sinks: map[string]core.Sink{"s": h}, Owner: name, Drain: time.Second,
			Workers: []relay.Worker{{
				Sink: "s", Lanes: 3, Lease: 10 * time.Second, Timeout: 20 * time.Second,
				Backoff: relay.Backoff{Max: 10 * time.Second},
			}},
			MaxRedeliveries: 1000, // faults must not fail a job
			Logger:          slog.New(slog.DiscardHandler),
		})
		if err != nil {
			h.t.Fatal(err)
		}
		relays.Go(func() { _ = r.Run(ctx) })
		return q
	}
	var ids []string
	for n := range historyProcesses {
		q := start(fmt.Sprint("process ", n))
		for i := range historyJobs / historyProcesses {
			ids = append(ids, h.enqueue(ctx, n*historyJobs/historyProcesses+i))
			time.Sleep(h.upTo(500 * time.Millisecond))
		}
		if n < historyProcesses-2 { // dies, with all that it has in its hands
			q.sever()
		}
	}
	time.Sleep(time.Minute)
	h.mu.Lock()
	h.calm = true
	h.mu.Unlock()
	time.Sleep(time.Hour)
	cancel()
	relays.Wait()
	h.check(ids)
}

func (h *jobHistory) enqueue(ctx context.Context, i int) (id string) {
	j := job(fmt.Sprint("j", i), tries(historyAttempts), prio(core.Priority(i%3-1)), tenant([]string{"", "a", "b", "c"}[i%4]))
	j.AggregateID = fmt.Sprint("k", i%40)
	err := h.store.InTransaction(ctx, func(ctx context.Context) error {
		receipts, err := h.store.Enqueue(ctx, j)
		if err == nil {
			id = receipts[0].ID
		}
		return err
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return id
}

func (h *jobHistory) check(ids []string) {
	states := map[core.JobState]int{}
	for _, id := range ids {
		info, err := h.store.Job(context.Background(), id)
		if err != nil {
			h.t.Fatal(err)
		}
		states[info.State]++
		switch {
		case info.Attempts > historyAttempts:
			h.t.Errorf("%s: %d attempts of %d", info.EventID, info.Attempts, historyAttempts)
		case info.State == core.JobCompleted && h.given[info.EventID] == 0:
			h.t.Errorf("%s is completed and was never delivered", info.EventID)
		case info.State == core.JobFailed && info.Failure.Code == core.CodeExhausted && info.Attempts != historyAttempts:
			h.t.Errorf("%s failed after %d attempts: %+v", info.EventID, info.Attempts, info.Failure)
		case info.State == core.JobFailed && !slices.Contains([]string{core.CodeExhausted, core.CodeRejected}, info.Failure.Code):
			h.t.Errorf("%s failed: %+v", info.EventID, info.Failure)
		case !info.State.Final():
			h.t.Errorf("%s is still %s", info.EventID, info.State)
		}
	}
	if states[core.JobCompleted] < historyJobs/2 || h.sent < 100 {
		h.t.Errorf("states %v after %d calls", states, h.sent)
	}
	h.t.Log(states, h.sent, "calls")
}
