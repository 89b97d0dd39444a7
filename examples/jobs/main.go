// Jobs shows the queue: a program writes accounts, and enqueues a mail for each
// in the same transaction. A worker brings the mails to a sink of the program's
// own, which refuses some of them for now and one for good.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/examples/internal/example"
	"github.com/gooutbox/outbox/relay"
	mongostore "github.com/gooutbox/outbox/store/mongo"
)

func main() { example.Main(run) }

const accounts = 10

// account is what the program stores; its mail is the job's payload.
type account struct {
	ID   int    `bson:"_id" json:"id"`
	Mail string `bson:"mail" json:"mail"`
}

// run writes the count to out.
func run(ctx context.Context, out io.Writer) (err error) {
	ctx, cancel := example.Limit(ctx)
	defer cancel()
	stage, err := example.Open("jobs", out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stage.Close()) }()
	db := stage.DB
	store, err := mongostore.New(db, mongostore.Config{})
	if err != nil {
		return err
	}
	if err := store.EnsureIndexes(ctx); err != nil {
		return err
	}
	for number := range accounts {
		if err := register(ctx, db, store, account{number, fmt.Sprintf("jo-%d@example.org", number)}); err != nil {
			return fmt.Errorf("registering account %d: %w", number, err)
		}
	}
	// An account whose transaction rolls back is never welcomed.
	if err := register(ctx, db, store, account{0, "twice@example.org"}); !mongo.IsDuplicateKeyError(err) {
		return fmt.Errorf("registering account 0 again: %w", err)
	}

	mails := &mailbox{sent: map[string]string{}, deferred: map[string]bool{}}
	failed, err := work(ctx, store, mails)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "accounts=%d sent=%d failed=%d\n", accounts, len(mails.sent), failed)
	return err
}

// register stores an account and enqueues its mail, in one transaction.
func register(ctx context.Context, db *mongo.Database, store *mongostore.Store, a account) error {
	return store.InTransaction(ctx, func(ctx context.Context) error {
		if _, err := db.Collection("accounts").InsertOne(ctx, a); err != nil {
			return err
		}
		event, err := core.WithJSON(core.Event{Aggregate: "account", AggregateID: fmt.Sprint(a.ID), Type: "account.welcome"}, a)
		if err != nil {
			return err
		}
		// Under one key an account is welcomed once, however often this is tried.
		_, err = store.Enqueue(ctx, core.Job{Event: event, Sink: "mail", DedupKey: fmt.Sprintf("welcome-%d", a.ID)})
		return err
	})
}

// work runs a worker until every job has ended, and returns how many failed.
func work(ctx context.Context, store *mongostore.Store, mails *mailbox) (failed int64, err error) {
	r, err := relay.New(relay.Config{
		Log: store, Queue: store,
		// A sink is a function, or any type with the methods of core.Sink.
		Sinks:   map[string]core.Sink{"mail": core.SinkFunc(mails.deliver)},
		Workers: []relay.Worker{{Sink: "mail", Backoff: relay.Backoff{Initial: 100 * time.Millisecond}}},
	})
	if err != nil {
		return 0, err
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- r.Run(running) }()
	defer func() {
		stop()
		err = errors.Join(err, <-ended)
	}()
	err = example.Await(ctx, "the jobs", func() (bool, error) {
		stats, err := store.Stats(ctx)
		failed = stats.Failed
		return stats.Completed+stats.Failed == accounts, err
	})
	return failed, err
}

// mailbox stands for a mail service. Its methods may be called by several
// goroutines at once, as a sink's are.
type mailbox struct {
	mu       sync.Mutex
	sent     map[string]string
	deferred map[string]bool
}

// deliver is the sink. Its error says what becomes of the job: any error means
// another try later, one marked as rejected that there will be none.
func (m *mailbox) deliver(_ context.Context, l core.Lease) error {
	var to account
	if err := json.Unmarshal(l.Event.Payload, &to); err != nil {
		return core.MarkRejected(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case to.ID == 7:
		return core.MarkRejected(errors.New("550 no such mailbox")) // kept as failed: see `outbox failed`
	case to.ID%2 == 0 && !m.deferred[l.Event.ID]:
		m.deferred[l.Event.ID] = true
		return errors.New("450 try again later")
	}
	m.sent[l.Event.ID] = to.Mail // by id: a job may come again after a crash
	return nil
}
