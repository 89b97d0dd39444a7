package tests

import (
	"context"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gooutbox/outbox/internal/services"
	"github.com/gooutbox/outbox/internal/servicetest"
	"github.com/gooutbox/outbox/internal/trial"
)

// TestTheHistoryOfAQueueKeepsItsRules lets workers deliver jobs while they are
// killed and stalled and the primary steps down, and then reads the history that
// the servers wrote.
func TestTheHistoryOfAQueueKeepsItsRules(t *testing.T) {
	t.Parallel()
	set := servicetest.StartMongod(t, services.MongodConfig{Nodes: 3, CacheMB: 256})
	for round := range scale(1, 20) {
		t.Run(fmt.Sprintf("round-%02d", round+1), func(t *testing.T) {
			c := newCast(t, set.URL())
			c.config.Worker, c.config.JobLease, c.config.BatchJobs, c.config.Lanes = true, 2*time.Second, 5, 3
			c.config.Seed, c.config.Takes = uint64(round), 60*time.Millisecond
			c.config.Shares = map[string]float64{"refused": 0.06, "rejected": 0.01, "unknown": 0.03, "throttled": 0.002}
			c.history(round, func(ctx context.Context) int {
				stepDowns := 0
				for every(ctx, 4*time.Second) {
					if set.StepDown(ctx) == nil {
						stepDowns++
					}
				}
				return stepDowns
			})
		})
	}
}

// history lets a JobWorkload run through kills, stalls and disturb, and checks
// what came of it.
func (c *cast) history(round int, disturb func(ctx context.Context) (times int)) {
	t := c.t
	t.Helper()
	changes, err := trial.RecordJobs(t.Context(), c.db.Collection("outbox_jobs"))
	require.NoError(t, err)
	followed := make(chan error, 1)
	following, stopFollowing := context.WithCancel(t.Context())
	defer stopFollowing()
	go func() { followed <- changes.Follow(following) }()

	w := &trial.JobWorkload{
		Box: c.store, Database: c.db, Transactions: scale(300, 3000), Workers: 4, Pause: 350 * time.Millisecond,
		DedupKeys: scale(60, 600), MaxAttempts: 4, Seed: uint64(round),
	}
	var stepDowns, kills, stalls int
	disturbing, calm := background(t, func(ctx context.Context) { stepDowns = disturb(ctx) })
	troubled, peace := background(t, func(ctx context.Context) {
		kills, stalls = c.trouble(ctx, 4, rand.New(rand.NewPCG(uint64(round), 7)))
	})
	w.Run(t.Context())
	for range scale(0, 30) { // more trouble while the rest is delivered
		every(t.Context(), time.Second)
	}
	peace()
	<-troubled
	calm()
	<-disturbing

	survivors := []*trial.Relay{c.start(), c.start()}
	defer c.tellOfFailure(changes, survivors)
	eventually(t, scale(time.Minute, 3*time.Minute), "the end of all jobs", func() bool { return changes.Open() == 0 })
	for _, one := range survivors {
		c.stop(one)
	}
	stopFollowing()
	require.NoError(t, <-followed)
	ledger, err := trial.JobLedger(t.Context(), c.db)
	require.NoError(t, err)
	report := trial.CheckJobs(ledger, changes.Changes(), c.notes())
	p := w.Progress()
	results.add(t.Name(), fmt.Sprintf("kills=%d stalls=%d stepdowns=%d aborted=%d conflicts=%d", kills, stalls, stepDowns, p.Aborted, p.Conflicts), report.Line())
	require.Empty(t, report.Faults, report.Line())
	require.Positive(t, report.Committed)
	require.Positive(t, report.TakenBack, "no lease ran out")
	require.Positive(t, report.Duplicates)
}

// trouble keeps so many actors running until ctx ends; it kills some, and stalls
// others for longer than a lease and its grace. At the end none is left.
func (c *cast) trouble(ctx context.Context, actors int, random *rand.Rand) (kills, stalls int) {
	running := make([]*trial.Relay, actors)
	resume := make([]time.Time, actors) // of those that are stalled
	defer func() {
		for i, one := range running {
			if one != nil {
				if !resume[i].IsZero() {
					one.Signal(syscall.SIGCONT)
				}
				one.Kill()
				kills++
			}
		}
	}()
	for i := range running {
		running[i] = c.start()
	}
	for every(ctx, time.Duration(300+random.IntN(1500))*time.Millisecond) {
		for i, at := range resume {
			if !at.IsZero() && time.Now().After(at) {
				running[i].Signal(syscall.SIGCONT)
				resume[i] = time.Time{}
			}
		}
		i := random.IntN(actors)
		switch {
		case !resume[i].IsZero():
		case random.IntN(2) == 0:
			running[i].Kill()
			kills++
			running[i] = c.start()
		default:
			running[i].Signal(syscall.SIGSTOP)
			stalls++
			// Some wake in time, and some when their jobs are with others.
			resume[i] = time.Now().Add(time.Duration(1+random.IntN(10)) * time.Second)
		}
	}
	return kills, stalls
}

// tellOfFailure logs what is still open, and what the last actors said.
func (c *cast) tellOfFailure(changes *trial.History, survivors []*trial.Relay) {
	if !c.t.Failed() {
		return
	}
	rows := map[string]trial.JobRow{}
	for _, change := range changes.Changes() {
		rows[change.Job] = change.Row
	}
	for _, row := range rows {
		if !row.State.Final() {
			c.t.Logf("open: %+v", row)
		}
	}
	for _, one := range survivors {
		c.t.Logf("an actor's log:\n%s", one.Log())
	}
}
