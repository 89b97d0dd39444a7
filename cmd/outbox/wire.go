package main

import (
	"context"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/config"
)

// The stores and sinks that a configuration may name. Another one is a file
// with its options and a line here.
var (
	storeKinds = map[string]func() storeOptions{
		"mongodb": func() storeOptions { return newMongoOptions() },
		"sqlite":  func() storeOptions { return newSQLiteOptions() },
	}
	sinkKinds = map[string]func() sinkOptions{
		"amqp":  func() sinkOptions { return newAMQPOptions() },
		"kafka": func() sinkOptions { return newKafkaOptions() },
		"mail":  func() sinkOptions { return newMailOptions() },
		"sqs":   func() sinkOptions { return newSQSOptions() },
	}
)

// parts is what a store or a sink may use of the program.
type parts struct {
	logger *slog.Logger
	meters metric.MeterProvider
	// queue is how a store is to keep jobs; its zero value stands for the
	// store's own defaults.
	queue config.Queue
	// store is what a sink may keep something in. Stores don't use it.
	store store
}

// storeOptions is the configuration of one kind of store.
type storeOptions interface {
	// open makes the store. It doesn't wait until the database answers; an
	// error marked as unavailable may pass, every other one is final.
	open(ctx context.Context, p parts) (store, error)
}

// store is what the commands need of one.
type store interface {
	core.Log
	core.Queue
	core.Admin
	// ensureIndexes makes what is missing, or with dryRun only says so, one
	// line for each thing.
	ensureIndexes(ctx context.Context, dryRun bool) ([]string, error)
	// ensureValidators makes the database refuse what could not be delivered, or
	// with dryRun only says on what, one line for each thing.
	ensureValidators(ctx context.Context, dryRun bool) ([]string, error)
	// lint compares stored events and jobs with the documented layout: the newest
	// of each up to a limit, 0 for all, or so many at random.
	lint(ctx context.Context, limit, sample int) (lintReport, error)
	// check looks for everything that a relay with these routes needs.
	check(ctx context.Context, file *config.File, found *findings)
	// leaseUntil tells when the lease of a cursor ends, by the store's time.
	leaseUntil(ctx context.Context, cursor string) (time.Time, error)
	// ping returns an error if the store doesn't answer before ctx ends.
	ping(ctx context.Context) error
	// newest returns at most n of the newest events, with no more than what the
	// name of a destination is made of. The order is the newest first, as far as
	// the store knows it.
	newest(ctx context.Context, n int) ([]core.Event, error)
	// close ends the connections, waiting for them until ctx ends.
	close(ctx context.Context) error
}

// sinkOptions is the configuration of one kind of sink.
type sinkOptions interface {
	// open makes the sink. It doesn't wait until the destination answers.
	open(p parts) (core.Sink, error)
}

// kinds is what internal/config needs to know of the tables.
func kinds() config.Kinds {
	k := config.Kinds{Stores: map[string]func() any{}, Sinks: map[string]func() any{}}
	for name, options := range storeKinds {
		k.Stores[name] = func() any { return options() }
	}
	for name, options := range sinkKinds {
		k.Sinks[name] = func() any { return options() }
	}
	return k
}
