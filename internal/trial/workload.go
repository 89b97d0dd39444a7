package trial

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"golang.org/x/time/rate"

	"github.com/gooutbox/outbox/core"
)

// Outbox is what a workload needs of a store: both methods of store/mongo.
type Outbox interface {
	Append(ctx context.Context, events ...core.Event) error
	InTransaction(ctx context.Context, fn func(ctx context.Context) error) error
}

// Workload is an order service: transactions on a fixed set of accounts. Each
// raises the version of one account, or of two, and appends an event for each
// change, with the account as key and the new version as aggregate version.
// About one transaction in fourteen is aborted after it wrote everything;
// workers that meet at an account conflict, and the driver repeats one of them.
type Workload struct {
	// Outbox and Database are where the transactions go.
	Outbox   Outbox
	Database *mongo.Database
	// Type is the type of all events, which the relay's topic template turns
	// into the topic.
	Type string
	// Transactions is how many are tried, aborted ones included.
	Transactions int
	// Keys is the number of accounts. Defaults to 500.
	Keys int
	// Workers commit side by side. Defaults to 10.
	Workers int
	// PerSecond bounds the transactions a second. 0 means no bound.
	PerSecond float64
	// PayloadBytes pads each event's payload. Defaults to 100.
	PayloadBytes int
	// Seed makes the choice of accounts and aborts repeatable.
	Seed uint64

	begun, done, aborted, failed, attempts atomic.Int64
}

// Names of the collections that a workload writes beside the outbox.
const (
	accountsName = "accounts"
	ledgerName   = "ledger"
)

// errAbort ends a transaction that was meant to be aborted.
var errAbort = errors.New("aborted on purpose")

// Progress is how far a workload has come.
type Progress struct {
	// Done counts the transactions that ended, in whatever way; Aborted those
	// that were aborted on purpose, and Failed those that the database refused,
	// or whose answer was lost.
	Done, Aborted, Failed int64
	// Conflicts counts the attempts that were repeated by the driver.
	Conflicts int64
}

// Progress may be called while Run runs.
func (w *Workload) Progress() Progress {
	done := w.done.Load()
	return Progress{
		Done: done, Aborted: w.aborted.Load(), Failed: w.failed.Load(),
		Conflicts: max(0, w.attempts.Load()-done),
	}
}

// Prepare creates the accounts. Call it once before Run.
func (w *Workload) Prepare(ctx context.Context) error {
	w.setDefaults()
	accounts := make([]any, w.Keys)
	for i := range accounts {
		accounts[i] = bson.D{{Key: "_id", Value: w.key(i)}, {Key: "version", Value: int64(0)}}
	}
	if _, err := w.Database.Collection(accountsName).InsertMany(ctx, accounts); err != nil {
		return fmt.Errorf("creating the accounts: %w", err)
	}
	if err := w.Database.CreateCollection(ctx, ledgerName); err != nil {
		return fmt.Errorf("creating the ledger: %w", err)
	}
	return nil
}

func (w *Workload) setDefaults() {
	if w.Keys <= 0 {
		w.Keys = 500
	}
	if w.Workers <= 0 {
		w.Workers = 10
	}
	if w.PayloadBytes <= 0 {
		w.PayloadBytes = 100
	}
}

func (w *Workload) key(i int) string { return "account-" + strconv.Itoa(i) }

// Run commits the transactions and returns when all have ended. It may be
// called again, for as many more. Transactions that fail are counted, not
// reported: whether one of them was committed is for the ledger to tell. The
// error is that of ctx.
func (w *Workload) Run(ctx context.Context) error {
	w.setDefaults()
	limit := rate.NewLimiter(rate.Inf, 1)
	if w.PerSecond > 0 {
		limit = rate.NewLimiter(rate.Limit(w.PerSecond), w.Workers)
	}
	next := make(chan int)
	var workers sync.WaitGroup
	for id := range w.Workers {
		workers.Go(func() {
			random := rand.New(rand.NewPCG(w.Seed, uint64(id)))
			for n := range next {
				w.transact(ctx, n, random)
			}
		})
	}
	var err error
	for range w.Transactions {
		if err = limit.Wait(ctx); err != nil {
			break
		}
		next <- int(w.begun.Add(1))
	}
	close(next)
	workers.Wait()
	return err
}

// change is one account's part of a transaction.
type change struct {
	account string
	eventID string
}

// transact runs transaction n, on one account or two.
func (w *Workload) transact(ctx context.Context, n int, random *rand.Rand) {
	first := random.IntN(w.Keys)
	accounts := []int{first}
	if n%8 == 0 && w.Keys > 1 {
		accounts = append(accounts, (first+1+random.IntN(w.Keys-1))%w.Keys)
	}
	abort := random.IntN(14) == 0
	attempt := 0
	err := w.Outbox.InTransaction(ctx, func(ctx context.Context) error {
		attempt++
		w.attempts.Add(1)
		for _, account := range accounts {
			// An id names the attempt, so that an event of an attempt that was
			// rolled back can be told from that of the one that was committed.
			id := fmt.Sprintf("%d-%d-%d", n, account, attempt)
			if err := w.change(ctx, change{account: w.key(account), eventID: id}); err != nil {
				return err
			}
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
	w.done.Add(1)
}

// body is an event's payload.
type body struct {
	Account string `json:"account"`
	Version int64  `json:"version"`
	Padding string `json:"padding"`
}

// change raises the version of an account, appends the event that tells it, and
// enters both in the ledger.
func (w *Workload) change(ctx context.Context, c change) error {
	var account struct {
		Version int64 `bson:"version"`
	}
	err := w.Database.Collection(accountsName).FindOneAndUpdate(ctx,
		bson.D{{Key: "_id", Value: c.account}},
		bson.D{{Key: "$inc", Value: bson.D{{Key: "version", Value: 1}}}},
		options.FindOneAndUpdate().SetReturnDocument(options.After),
	).Decode(&account)
	if err != nil {
		return fmt.Errorf("raising the version of an account: %w", err)
	}
	event, err := core.WithJSON(core.Event{
		ID: c.eventID, Aggregate: "account", AggregateID: c.account, Type: w.Type,
		AggregateVersion: account.Version, OccurredAt: time.Now(),
	}, body{Account: c.account, Version: account.Version, Padding: padding(w.PayloadBytes)})
	if err != nil {
		return err
	}
	if err := w.Outbox.Append(ctx, event); err != nil {
		return err
	}
	entry := Committed{ID: c.eventID, Key: c.account, Version: account.Version}
	if _, err := w.Database.Collection(ledgerName).InsertOne(ctx, entry); err != nil {
		return fmt.Errorf("entering the change in the ledger: %w", err)
	}
	return nil
}

func padding(n int) string {
	const text = "the quick brown fox jumps over the lazy dog "
	b := make([]byte, n)
	for i := range b {
		b[i] = text[i%len(text)]
	}
	return string(b)
}
