// Command actor is the relay of tests that need a sink which does as it is told:
// see trial.Actor. `actor relay --config FILE` runs until SIGTERM.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/trial"
	"github.com/gooutbox/outbox/relay"
	mongostore "github.com/gooutbox/outbox/store/mongo"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: actor relay --config FILE")
		os.Exit(2)
	}
	if err := run(os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// sinkName is the only sink's.
const sinkName = "s"

func run(path string) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	fmt.Fprintln(os.Stderr, trial.ActorUp)
	a, err := trial.ReadActor(path)
	if err != nil {
		return err
	}
	client, err := mongo.Connect(options.Client().ApplyURI(a.URI).SetServerSelectionTimeout(10 * time.Second))
	if err != nil {
		return fmt.Errorf("connecting to MongoDB: %w", err)
	}
	defer client.Disconnect(context.WithoutCancel(ctx)) //nolint:errcheck // nothing is left to save
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	store, err := mongostore.New(client.Database(a.Database), mongostore.Config{Logger: log})
	if err != nil {
		return err
	}
	s, err := openSink(a)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close(context.WithoutCancel(ctx))) }()
	r, err := relay.New(relayConfig(a, store, s, log))
	if err != nil {
		return err
	}
	log.Info("relay started", "owner", a.Owner)
	return r.Run(ctx)
}

func relayConfig(a trial.Actor, store *mongostore.Store, s core.Sink, log *slog.Logger) relay.Config {
	backoff := relay.Backoff{Initial: a.BackoffInitial, Max: a.BackoffMax}
	cfg := relay.Config{
		Log: store, Queue: store, Sinks: map[string]core.Sink{sinkName: s}, Owner: a.Owner, Logger: log,
		CursorLease: a.CursorLease, MaxRedeliveries: a.MaxRedeliveries, Drain: 10 * time.Second,
	}
	if a.Route != "" {
		route := relay.Route{
			Name: a.Route, Sink: sinkName, MaxAttempts: a.MaxAttempts, Backoff: backoff, Lanes: a.Lanes,
			BatchEvents: 100, Window: 1000,
		}
		if a.Hold {
			route.OnFailure = relay.Hold
		}
		cfg.Routes = []relay.Route{route}
	}
	if a.Worker {
		cfg.Workers = []relay.Worker{{Sink: sinkName, Lease: a.JobLease, Backoff: backoff, BatchJobs: a.BatchJobs, Lanes: a.Lanes}}
	}
	return cfg
}
