package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/segmentio/kafka-go"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/trial"
	mongostore "github.com/gooutbox/outbox/store/mongo"
)

// latencies are in milliseconds, from the acknowledgement of the commit to the
// consumer's having the event.
type latencies struct {
	P50 float64 `json:"p50_ms"`
	P95 float64 `json:"p95_ms"`
	P99 float64 `json:"p99_ms"`
	Max float64 `json:"max_ms"`
	// Events is how many were measured.
	Events int `json:"events"`
}

type latencyBench struct {
	servers
	perSecond        int
	warmup, measured time.Duration
	partitions       int

	mu      sync.Mutex
	acked   map[string]time.Time
	arrived map[string]time.Time
	grown   chan struct{} // has room for one: told when an event arrives
}

func benchLatency(ctx context.Context, s servers, args []string) error {
	b := &latencyBench{
		servers: s, partitions: 3,
		acked: map[string]time.Time{}, arrived: map[string]time.Time{}, grown: make(chan struct{}, 1),
	}
	flags := flag.NewFlagSet("bench latency", flag.ContinueOnError)
	asJSON := flags.Bool("json", false, "print one JSON object")
	flags.IntVar(&b.perSecond, "rate", 200, "events a second, each in a transaction of its own")
	flags.DurationVar(&b.measured, "for", 20*time.Second, "how long to measure")
	flags.DurationVar(&b.warmup, "warmup", 3*time.Second, "how long to run before")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if b.perSecond < 1 || b.measured <= 0 {
		return errors.New("--rate must be at least 1, --for more than 0")
	}
	l, err := b.measure(ctx)
	if err != nil {
		return err
	}
	if *asJSON {
		return json.NewEncoder(os.Stdout).Encode(l)
	}
	fmt.Printf("%d events at %d a second, from commit to consumer\n", l.Events, b.perSecond)
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(t, "p50 ms\tp95 ms\tp99 ms\tmax ms\t")
	_, _ = fmt.Fprintf(t, "%.1f\t%.1f\t%.1f\t%.1f\t\n", l.P50, l.P95, l.P99, l.Max)
	return t.Flush()
}

func (b *latencyBench) measure(ctx context.Context) (_ latencies, err error) {
	client, err := mongo.Connect(options.Client().ApplyURI(b.mongoURL))
	if err != nil {
		return latencies{}, fmt.Errorf("connecting to MongoDB: %w", err)
	}
	defer func() { _ = client.Disconnect(context.WithoutCancel(ctx)) }()
	db := client.Database("bench-" + strconv.FormatInt(time.Now().UnixNano(), 36))
	defer func() { err = errors.Join(err, db.Drop(context.WithoutCancel(ctx))) }()
	store, err := mongostore.New(db, mongostore.Config{})
	if err != nil {
		return latencies{}, err
	}
	if err := store.EnsureIndexes(ctx); err != nil {
		return latencies{}, err
	}
	const run = "latency"
	topic := topicName(db.Name(), routeName(run, 0))
	topics := newTopics(b.servers, b.partitions)
	defer topics.close()
	if err := topics.make(ctx, topic); err != nil {
		return latencies{}, err
	}
	defer topics.remove(ctx, topic)

	stopRelay, err := startRelay(ctx, "drain-child", "--database", db.Name(), "--name", run)
	if err != nil {
		return latencies{}, err
	}
	defer stopRelay()
	consuming, stop := context.WithCancel(ctx)
	var consumers sync.WaitGroup
	defer func() { stop(); consumers.Wait() }()
	for partition := range b.partitions {
		consumers.Go(func() { b.consume(consuming, topic, partition) })
	}
	if err := b.produce(ctx, store, db, "warm", b.warmup); err != nil {
		return latencies{}, err
	}
	if err := b.produce(ctx, store, db, "event", b.measured); err != nil {
		return latencies{}, err
	}
	return b.result()
}

// startRelay starts a child that relays until the returned function is called.
func startRelay(ctx context.Context, args ...string) (stop func(), err error) {
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the relay: %w", err)
	}
	return func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait() // measured or failed, its part is over
	}, nil
}

// produce commits events at a steady rate, each in a transaction with a
// business document, whatever the earlier ones do; and returns when all have
// arrived.
func (b *latencyBench) produce(ctx context.Context, store *mongostore.Store, db *mongo.Database, name string, duration time.Duration) error {
	total := int(duration.Seconds() * float64(b.perSecond))
	orders := db.Collection("orders")
	failed := make(chan error, total)
	var commits sync.WaitGroup
	tick := time.NewTicker(time.Second / time.Duration(b.perSecond))
	defer tick.Stop()
	for n := range total {
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
		commits.Go(func() {
			id := name + "-" + strconv.Itoa(n)
			err := store.InTransaction(ctx, func(ctx context.Context) error {
				if _, err := orders.InsertOne(ctx, bson.D{{Key: "_id", Value: id}}); err != nil {
					return err
				}
				return store.Append(ctx, core.Event{ID: id, AggregateID: id, Type: "order.placed", Payload: []byte(`{"total":1}`)})
			})
			now := time.Now()
			if err != nil {
				failed <- err
				return
			}
			b.mu.Lock()
			b.acked[id] = now
			b.mu.Unlock()
		})
	}
	commits.Wait()
	select {
	case err := <-failed:
		return err
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for b.missing() > 0 {
		select {
		case <-b.grown:
		case <-ctx.Done():
			return fmt.Errorf("waiting for %d events: %w", b.missing(), ctx.Err())
		}
	}
	return nil
}

func (b *latencyBench) missing() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.acked) - len(b.arrived)
}

// consume notes when each event of a partition arrives.
func (b *latencyBench) consume(ctx context.Context, topic string, partition int) {
	client := trial.NewKafkaClient(b.brokers)
	defer client.Transport.(*kafka.Transport).CloseIdleConnections()
	for offset := int64(0); ctx.Err() == nil; {
		response, err := client.Fetch(ctx, &kafka.FetchRequest{
			Topic: topic, Partition: partition, Offset: offset, MinBytes: 1, MaxBytes: 1 << 20, MaxWait: time.Second,
		})
		if err != nil || response.Error != nil {
			continue // the run ends by its own deadline if this goes on
		}
		now := time.Now()
		for {
			r, err := response.Records.ReadRecord()
			if errors.Is(err, io.EOF) || err != nil {
				break
			}
			if r.Offset < offset {
				continue
			}
			offset = r.Offset + 1
			for _, h := range r.Headers {
				if h.Key == "ce_id" {
					b.arrive(string(h.Value), now)
				}
			}
		}
	}
}

func (b *latencyBench) arrive(id string, at time.Time) {
	b.mu.Lock()
	if _, again := b.arrived[id]; !again {
		b.arrived[id] = at
	}
	b.mu.Unlock()
	select {
	case b.grown <- struct{}{}:
	default:
	}
}

func (b *latencyBench) result() (latencies, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var ms []float64
	for id, acked := range b.acked {
		if id[0] == 'e' { // not of the warm-up
			ms = append(ms, float64(b.arrived[id].Sub(acked))/float64(time.Millisecond))
		}
	}
	if len(ms) == 0 {
		return latencies{}, errors.New("no event was measured: make --for longer")
	}
	slices.Sort(ms)
	at := func(q float64) float64 { return ms[min(len(ms)-1, int(q*float64(len(ms))))] }
	return latencies{P50: at(0.5), P95: at(0.95), P99: at(0.99), Max: ms[len(ms)-1], Events: len(ms)}, nil
}
