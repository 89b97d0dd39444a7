package trial

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"

	"github.com/gooutbox/outbox/core"
)

// JobBox is what a JobWorkload needs of a store: both methods of store/mongo.
type JobBox interface {
	Enqueue(ctx context.Context, jobs ...core.Job) ([]core.Receipt, error)
	InTransaction(ctx context.Context, fn func(ctx context.Context) error) error
}

// JobWorkload enqueues jobs for the sink "s" in transactions that also enter
// them in a ledger: one to four jobs each, of all priorities and of some tenants,
// every third with a key for deduplication that others use too. One transaction
// in ten is aborted after it wrote everything.
type JobWorkload struct {
	Box      JobBox
	Database *mongo.Database
	// Transactions is how many are tried, Workers how many side by side.
	Transactions, Workers int
	// Pause bounds the random pause of a worker after each. Zero is none.
	Pause time.Duration
	// DedupKeys is how many different ones there are, MaxAttempts that of each job.
	DedupKeys, MaxAttempts int
	Seed                   uint64

	begun, aborted, failed, attempts atomic.Int64
}

// EnqueuedJob is an entry of the ledger: one job that a committed transaction
// enqueued, or its duplicate.
type EnqueuedJob struct {
	// EventID names the event of this attempt of the transaction.
	EventID string `bson:"_id"`
	// JobID is that of the receipt.
	JobID     string `bson:"job"`
	DedupKey  string `bson:"dedup_key"`
	Duplicate bool   `bson:"duplicate"`
}

const jobLedgerName = "job_ledger"

// Progress may be called while Run runs.
func (w *JobWorkload) Progress() Progress {
	begun := w.begun.Load()
	return Progress{Done: begun, Aborted: w.aborted.Load(), Failed: w.failed.Load(), Conflicts: max(0, w.attempts.Load()-begun)}
}

// Run enqueues until all transactions have ended, or ctx has.
func (w *JobWorkload) Run(ctx context.Context) {
	var workers sync.WaitGroup
	for id := range w.Workers {
		workers.Go(func() {
			random := rand.New(rand.NewPCG(w.Seed, uint64(id)))
			for ctx.Err() == nil {
				n := w.begun.Add(1)
				if n > int64(w.Transactions) {
					w.begun.Add(-1)
					return
				}
				w.transact(ctx, n, random)
				if w.Pause > 0 {
					select {
					case <-ctx.Done():
					case <-time.After(time.Duration(random.Int64N(int64(w.Pause)))):
					}
				}
			}
		})
	}
	workers.Wait()
}

func (w *JobWorkload) transact(ctx context.Context, n int64, random *rand.Rand) {
	jobs := make([]core.Job, 1+random.IntN(4))
	for i := range jobs {
		jobs[i] = core.Job{
			Event:    core.Event{Aggregate: "order", Type: "order.told", Payload: []byte(`{}`), ContentType: "application/json"},
			Sink:     "s",
			Priority: core.Priority(random.IntN(3) - 1), MaxAttempts: w.MaxAttempts,
		}
		if tenant := random.IntN(4); tenant > 0 {
			jobs[i].Tenant = fmt.Sprintf("tenant-%d", tenant)
		}
		if random.IntN(3) == 0 {
			key := random.IntN(w.DedupKeys)
			jobs[i].DedupKey, jobs[i].Tenant = fmt.Sprintf("key-%d", key), ""
		}
	}
	abort := random.IntN(10) == 0
	attempt := 0
	err := w.Box.InTransaction(ctx, func(ctx context.Context) error {
		attempt++
		w.attempts.Add(1)
		for i := range jobs {
			id := fmt.Sprintf("%d-%d-%d", n, i, attempt)
			jobs[i].ID, jobs[i].AggregateID = id, id
		}
		receipts, err := w.Box.Enqueue(ctx, jobs...)
		if err != nil {
			return err
		}
		entries := make([]any, len(jobs))
		for i, r := range receipts {
			entries[i] = EnqueuedJob{EventID: jobs[i].ID, JobID: r.ID, DedupKey: jobs[i].DedupKey, Duplicate: r.Duplicate}
		}
		if _, err := w.Database.Collection(jobLedgerName).InsertMany(ctx, entries); err != nil {
			return fmt.Errorf("entering jobs in the ledger: %w", err)
		}
		if abort {
			return errAbort
		}
		return nil
	})
	switch {
	case errors.Is(err, errAbort):
		w.aborted.Add(1)
	case err != nil:
		w.failed.Add(1)
	}
}

// JobLedger reads what was committed. Call it when the workload has ended.
func JobLedger(ctx context.Context, db *mongo.Database) ([]EnqueuedJob, error) {
	ledger := db.Collection(jobLedgerName, options.Collection().
		SetReadConcern(readconcern.Majority()).SetReadPreference(readpref.Primary()))
	cursor, err := ledger.Find(ctx, bson.D{})
	if err != nil {
		return nil, fmt.Errorf("reading the ledger: %w", err)
	}
	var entries []EnqueuedJob
	if err := cursor.All(ctx, &entries); err != nil {
		return nil, fmt.Errorf("reading the ledger: %w", err)
	}
	return entries, nil
}
