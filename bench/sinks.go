package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/relay"
	mongostore "github.com/gooutbox/outbox/store/mongo"
)

// sinkRow is what was measured through one sink: medians.
type sinkRow struct {
	Sink string `json:"sink"`
	// EventsPerSecond were drained from the log by a relay with this one route.
	EventsPerSecond float64 `json:"events_per_s"`
	// DirectPerSecond is the sink alone: called for the same events without log
	// and relay, by as many lanes as a route has.
	DirectPerSecond float64 `json:"direct_events_per_s"`
	OfDirect        float64 `json:"of_direct"`
}

type sinksBench struct {
	servers
	backlog
	runs int

	db    *mongo.Database
	store *mongostore.Store
}

func benchSinks(ctx context.Context, s servers, args []string) error {
	b := sinksBench{servers: s}
	flags := flag.NewFlagSet("bench sinks", flag.ContinueOnError)
	asJSON := flags.Bool("json", false, "print one JSON object")
	flags.IntVar(&b.events, "events", 10_000, "events in the backlog")
	flags.IntVar(&b.size, "size", 500, "bytes of an event's payload")
	flags.IntVar(&b.keys, "keys", 1000, "different keys")
	flags.IntVar(&b.runs, "runs", 3, "runs of each kind, interleaved; the median counts")
	names := flags.String("sinks", "", "those to measure, of "+sinkNames()+"; all but SQS if empty: an emulator takes longer the more a queue holds, so give it few")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if b.events < 1 || b.runs < 1 || b.keys < 1 {
		return errors.New("--events, --runs and --keys must be at least 1")
	}
	var chosen []sinkMaker
	for _, m := range sinkMakers {
		if *names == "" && (os.Getenv(m.server) == "" || m.server == awsServer) || *names != "" && !slices.Contains(strings.Split(*names, ","), m.name) {
			continue
		}
		chosen = append(chosen, m)
	}
	if len(chosen) == 0 {
		return fmt.Errorf("--sinks %q names none of %s", *names, sinkNames())
	}
	rows, err := b.measure(ctx, chosen)
	if err != nil {
		return err
	}
	if *asJSON {
		return json.NewEncoder(os.Stdout).Encode(struct {
			Rows []sinkRow `json:"rows"`
		}{rows})
	}
	fmt.Printf("%d events of %d bytes, %d keys, medians of %d\n", b.events, b.size, b.keys, b.runs)
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(t, "sink\tevents/s\tdirect/s\tof direct\t")
	for _, r := range rows {
		_, _ = fmt.Fprintf(t, "%s\t%.0f\t%.0f\t%.2f\t\n", r.Sink, r.EventsPerSecond, r.DirectPerSecond, r.OfDirect)
	}
	return t.Flush()
}

func (b *sinksBench) measure(ctx context.Context, makers []sinkMaker) (rows []sinkRow, err error) {
	client, err := mongo.Connect(options.Client().ApplyURI(b.mongoURL))
	if err != nil {
		return nil, fmt.Errorf("connecting to MongoDB: %w", err)
	}
	defer func() { _ = client.Disconnect(context.WithoutCancel(ctx)) }()
	b.db = client.Database(fmt.Sprintf("bench-sinks-%x", time.Now().UnixNano()))
	defer func() { err = errors.Join(err, b.db.Drop(context.WithoutCancel(ctx))) }()
	if b.store, err = mongostore.New(b.db, mongostore.Config{}); err != nil {
		return nil, err
	}
	if err := b.store.EnsureIndexes(ctx); err != nil {
		return nil, err
	}
	if err := b.backlog.store(ctx, b.db.Collection(logName)); err != nil {
		return nil, err
	}
	seconds := map[string][]result{} // by sink and way
	for n := range b.runs {
		for _, m := range makers {
			for way, run := range map[string]func(context.Context, core.Sink, string) error{"relay": b.drain, "direct": b.direct} {
				took, err := b.through(ctx, m, fmt.Sprintf("%s-%s-%d", m.name, way, n), run)
				if err != nil {
					return nil, fmt.Errorf("measuring %s: %w", m.name, err)
				}
				seconds[m.name+way] = append(seconds[m.name+way], result{Seconds: took.Seconds()})
			}
		}
	}
	for _, m := range makers {
		perSecond := func(way string) float64 {
			return float64(b.events) / median(seconds[m.name+way], func(r result) float64 { return r.Seconds })
		}
		r := sinkRow{Sink: m.name, EventsPerSecond: perSecond("relay"), DirectPerSecond: perSecond("direct")}
		r.OfDirect = r.EventsPerSecond / r.DirectPerSecond
		rows = append(rows, r)
	}
	return rows, nil
}

// through makes an empty destination, lets run fill it, and checks that it holds
// every event.
func (b *sinksBench) through(ctx context.Context, m sinkMaker, name string, run func(context.Context, core.Sink, string) error) (took time.Duration, err error) {
	d, err := m.make(ctx, b.servers, b.db.Name()+"-"+name)
	if err != nil {
		return 0, err
	}
	defer func() {
		err = errors.Join(err, d.sink.Close(context.WithoutCancel(ctx)), d.remove(context.WithoutCancel(ctx)))
	}()
	began := time.Now()
	if err := run(ctx, d.sink, name); err != nil {
		return 0, err
	}
	took = time.Since(began)
	holds, err := d.count(ctx)
	if err == nil && holds < b.events {
		err = fmt.Errorf("the destination holds %d of %d events", holds, b.events)
	}
	return took, err
}

// drain lets a relay deliver the log.
func (b *sinksBench) drain(ctx context.Context, sink core.Sink, name string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := &finish{left: int64(b.events), finished: cancel}
	r, err := relay.New(relay.Config{
		Log: b.store, Sinks: map[string]core.Sink{"s": &countingSink{Sink: sink, finish: done}},
		Routes: []relay.Route{{Name: name, Sink: "s"}},
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		return err
	}
	if err := r.Run(ctx); err != nil {
		return err
	}
	if done.at.IsZero() {
		return errors.New("the relay ended before all was delivered")
	}
	return nil
}

// direct calls the sink as a route does, each lane with keys of its own.
func (b *sinksBench) direct(ctx context.Context, sink core.Sink, name string) error {
	const lanes, batch = relay.DefaultLanes, core.DefaultReadEvents
	failed := make(chan error, lanes)
	payload := b.payload()
	var all sync.WaitGroup
	for lane := range lanes {
		all.Go(func() {
			var left []core.Lease
			for n := range b.events {
				if n%b.keys%lanes == lane {
					left = append(left, core.Lease{Route: name, Fence: 1, Source: "/outbox/bench", Attempt: 1, Event: core.Event{
						ID: fmt.Sprintf("%032x", n), Type: "order.placed", Aggregate: "order", AggregateID: fmt.Sprintf("order-%d", n%b.keys),
						Payload: payload, ContentType: "application/json", OccurredAt: time.Now(),
					}})
				}
			}
			for len(left) > 0 {
				call, rest := split(left, batch, core.CapabilitiesOf(sink))
				for _, r := range sink.Deliver(ctx, call) {
					if r.Outcome != core.Delivered {
						failed <- fmt.Errorf("delivering directly: %v: %w", r.Outcome, r.Err)
						return
					}
				}
				left = rest
			}
		})
	}
	all.Wait()
	close(failed)
	return <-failed
}

// split takes what may be in one call: at most so many leases, and of a key only
// the first unless the sink takes more.
func split(leases []core.Lease, most int, c core.Capabilities) (call, rest []core.Lease) {
	if c.MaxBatch > 0 {
		most = min(most, c.MaxBatch)
	}
	if c.PrefixPerKey {
		n := min(most, len(leases))
		return leases[:n], leases[n:]
	}
	keys := map[string]bool{}
	for i, l := range leases {
		if len(call) == most {
			return call, append(rest, leases[i:]...)
		}
		if key := l.Event.AggregateID; keys[key] {
			rest = append(rest, l)
		} else {
			keys[key] = true
			call = append(call, l)
		}
	}
	return call, rest
}
