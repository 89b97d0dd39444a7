package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/relay"
	mongostore "github.com/gooutbox/outbox/store/mongo"
)

// queueSink is the sink of all jobs.
const queueSink = "bench"

// shape is how many workers there are, each a relay with a client of its own,
// and how many calls each makes at once.
type shape struct{ workers, lanes int }

func parseShapes(text string) (shapes []shape, err error) {
	for one := range strings.SplitSeq(text, ",") {
		left, right, ok := strings.Cut(one, "x")
		w, errW := strconv.Atoi(left)
		l, errL := strconv.Atoi(right)
		if !ok || errW != nil || errL != nil || w < 1 || l < 1 {
			return nil, fmt.Errorf("--workers %q: want workers x lanes, such as 1x1,4x10", text)
		}
		shapes = append(shapes, shape{w, l})
	}
	return shapes, nil
}

func startProfile(name string) (stop func(), err error) {
	if name == "" {
		return func() {}, nil
	}
	out, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(out); err != nil {
		return nil, err
	}
	return func() {
		pprof.StopCPUProfile()
		_ = out.Close() // a profile
	}, nil
}

// newQueue makes a collection with all indexes, and a store that enqueues.
func (b *queueBench) newQueue(ctx context.Context) (store *mongostore.Store, collection string, err error) {
	b.made++
	collection = "run" + strconv.Itoa(b.made)
	store, err = mongostore.New(b.db, mongostore.Config{Collection: collection})
	if err != nil {
		return nil, "", err
	}
	if err := store.EnsureIndexes(ctx); err != nil {
		return nil, "", err
	}
	return store, collection, nil
}

// enqueue stores n jobs, some hundred in a transaction.
func (b *queueBench) enqueue(ctx context.Context, store *mongostore.Store, n int, tenant string) error {
	const batch = 500
	payload := backlog{size: b.size}.payload()
	for ; n > 0; n -= batch {
		jobs := make([]core.Job, min(n, batch))
		for i := range jobs {
			jobs[i] = core.Job{Sink: queueSink, Event: core.Event{
				Aggregate: "order", Type: "order.placed", Tenant: tenant, ContentType: "application/json", Payload: payload,
			}}
		}
		err := store.InTransaction(ctx, func(ctx context.Context) error {
			_, err := store.Enqueue(ctx, jobs...)
			return err
		})
		if err != nil {
			return fmt.Errorf("enqueuing: %w", err)
		}
	}
	return nil
}

// unwatched is a queue whose store can't tell of changes.
type unwatched struct{ core.Queue }

func (unwatched) Watch(context.Context, func(core.Wake)) error { return core.ErrNoWatch }

// relays are workers with clients of their own.
type relays struct {
	commands atomic.Int64
	clients  []*mongo.Client
	relays   []*relay.Relay
}

// newRelays makes relays that are connected and not yet running.
func (b *queueBench) newRelays(ctx context.Context, collection, wake string, s shape, sink core.Sink) (*relays, error) {
	rs := &relays{}
	warnings := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	for range s.workers {
		client, err := mongo.Connect(options.Client().ApplyURI(b.mongoURL).SetMonitor(&event.CommandMonitor{
			Started: func(context.Context, *event.CommandStartedEvent) { rs.commands.Add(1) },
		}))
		if err != nil {
			return nil, fmt.Errorf("connecting to MongoDB: %w", err)
		}
		rs.clients = append(rs.clients, client)
		if err := client.Ping(ctx, nil); err != nil {
			return nil, fmt.Errorf("reaching MongoDB: %w", err)
		}
		store, err := mongostore.New(client.Database(b.db.Name()), mongostore.Config{Collection: collection})
		if err != nil {
			return nil, err
		}
		queue := core.Queue(store)
		if wake == "poll" {
			queue = unwatched{store}
		}
		r, err := relay.New(relay.Config{
			Queue: queue, Sinks: map[string]core.Sink{queueSink: sink}, Logger: warnings,
			Workers: []relay.Worker{{Sink: queueSink, Lanes: s.lanes}},
		})
		if err != nil {
			return nil, err
		}
		rs.relays = append(rs.relays, r)
	}
	return rs, nil
}

func (rs *relays) close(ctx context.Context) {
	for _, client := range rs.clients {
		_ = client.Disconnect(context.WithoutCancel(ctx)) // it has nothing to write
	}
}

// run runs the relays until ctx ends and they have drained.
func (rs *relays) run(ctx context.Context) error {
	errs := make(chan error, len(rs.relays))
	var all sync.WaitGroup
	for _, r := range rs.relays {
		all.Go(func() { errs <- r.Run(ctx) })
	}
	all.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// drainQueue lets workers deliver jobs that are there, and times that until the
// last one is settled.
func (b *queueBench) drainQueue(ctx context.Context, wake string, s shape) (result, error) {
	store, collection, err := b.newQueue(ctx)
	if err != nil {
		return result{}, err
	}
	if err := b.enqueue(ctx, store, b.jobs, ""); err != nil {
		return result{}, err
	}
	running, finished := context.WithCancel(ctx)
	defer finished()
	done := &finish{left: int64(b.jobs), finished: finished}
	sink := core.SinkFunc(func(context.Context, core.Lease) error {
		done.delivered(1)
		return nil
	})
	rs, err := b.newRelays(ctx, collection, wake, s, sink)
	if err != nil {
		return result{}, err
	}
	defer rs.close(ctx)
	before := rs.commands.Load()
	started := time.Now()
	if err := rs.run(running); err != nil {
		return result{}, err
	}
	r := result{Seconds: time.Since(started).Seconds(), Commands: rs.commands.Load() - before}
	stats, err := store.Stats(ctx)
	if err != nil {
		return result{}, err
	}
	if stats.Completed != int64(b.jobs) {
		return result{}, fmt.Errorf("%d of %d jobs are completed: %+v", stats.Completed, b.jobs, stats.Sinks)
	}
	return r, nil
}
