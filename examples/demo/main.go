// Command demo shows the promise under fire, on real servers: an order service
// commits a few thousand transactions, of which some abort, while the relay is
// killed again and again and Kafka is restarted. Then it counts. Start it by
// `make demo`.
//
// It ends with status 1 if an event was lost, made up, or out of order.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/gooutbox/outbox/internal/services"
	"github.com/gooutbox/outbox/internal/trial"
	mongostore "github.com/gooutbox/outbox/store/mongo"
)

const (
	transactions = 4000
	perSecond    = 180
	accounts     = 200
	topic        = "account.changed"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	report, err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
	report.Table(os.Stdout)
	fmt.Println(report.Line())
	if !report.OK() {
		os.Exit(1)
	}
}

// demo is the scene: an order service and a broker, with a relay between them.
type demo struct {
	display   *trial.Display
	kafka     *services.Kafka
	db        *mongo.Database
	work      *trial.Workload
	collector *trial.Collector

	relayBin, relayConfig string
	kills                 atomic.Int64
}

func run(ctx context.Context) (report trial.Report, err error) {
	d := &demo{display: trial.NewDisplay(os.Stdout)}
	defer d.display.Clear()
	dir, err := os.MkdirTemp("", "outbox-demo-")
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	closeServers, err := d.open(ctx, dir)
	defer closeServers()
	if err != nil {
		return report, err
	}
	d.display.Note("%d transactions on %d accounts; the relay is killed at random moments, Kafka once", transactions, accounts)
	return d.play(ctx)
}

// open starts the servers, builds the relay, and makes database and topic. The
// function that it returns is never nil.
func (d *demo) open(ctx context.Context, dir string) (closeAll func(), err error) {
	var opened []func()
	closeAll = func() {
		for i := len(opened) - 1; i >= 0; i-- {
			opened[i]()
		}
	}
	services.Progress = os.Stderr
	uri := os.Getenv("MONGODB_URL")
	if uri == "" {
		d.display.Note("starting MongoDB")
		server, err := services.StartMongod(ctx, services.MongodConfig{})
		if err != nil {
			return closeAll, err
		}
		opened = append(opened, func() { _ = server.Close() })
		uri = server.URL()
	}
	d.display.Note("starting Kafka, building the relay")
	if d.kafka, err = services.StartKafka(ctx, services.KafkaConfig{}); err != nil {
		return closeAll, err
	}
	opened = append(opened, func() { _ = d.kafka.Close() })
	if err := d.kafka.CreateTopic(ctx, topic, 3, nil); err != nil {
		return closeAll, err
	}
	if d.relayBin, err = trial.BuildRelay(ctx, dir); err != nil {
		return closeAll, err
	}
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		return closeAll, fmt.Errorf("connecting to MongoDB: %w", err)
	}
	opened = append(opened, func() { _ = client.Disconnect(context.WithoutCancel(ctx)) })
	d.db = client.Database(filepath.Base(dir))
	opened = append(opened, func() { _ = d.db.Drop(context.WithoutCancel(ctx)) })
	store, err := mongostore.New(d.db, mongostore.Config{})
	if err != nil {
		return closeAll, err
	}
	if err := store.EnsureIndexes(ctx); err != nil {
		return closeAll, err
	}
	d.work = &trial.Workload{
		Outbox: store, Database: d.db, Type: topic,
		Transactions: transactions, PerSecond: perSecond, Keys: accounts, Seed: uint64(time.Now().UnixNano()), //nolint:gosec // any number will do
	}
	if err := d.work.Prepare(ctx); err != nil {
		return closeAll, err
	}
	d.collector = trial.NewCollector(d.kafka.Brokers(), topic)
	opened = append(opened, d.collector.Close)
	d.relayConfig, err = trial.Config{
		URI: uri, Database: d.db.Name(), Brokers: d.kafka.Brokers(), Lease: time.Second,
		RouteOptions: []string{"outage_backoff: {initial: 200ms, max: 1s}"}, // a demo is short
	}.Write(dir)
	return closeAll, err
}

// play commits while relays and the broker are killed, waits for what is still
// on its way, and counts.
func (d *demo) play(ctx context.Context) (trial.Report, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var side sync.WaitGroup // ends by cancel
	defer func() { cancel(); side.Wait() }()
	side.Go(func() { d.collector.Follow(ctx) })
	side.Go(func() { d.show(ctx) })

	killing, done := context.WithCancel(ctx)
	defer done()
	var acts sync.WaitGroup
	var workErr, brokerErr error
	acts.Go(func() { workErr = d.work.Run(ctx) })
	acts.Go(func() { brokerErr = d.restartKafka(ctx) })
	go func() { acts.Wait(); done() }()
	relay, _, err := trial.Killing{
		Start:     func() (*trial.Relay, error) { return trial.StartRelay(d.relayBin, d.relayConfig) },
		Collector: d.collector,
		Pause:     1500 * time.Millisecond,
		Killed:    func(n int) { d.kills.Store(int64(n)) },
	}.Run(killing)
	if relay != nil {
		defer relay.Kill()
	}
	if err != nil {
		return trial.Report{}, err
	}
	acts.Wait()
	if err := errors.Join(workErr, brokerErr); err != nil {
		return trial.Report{}, err
	}
	committed, err := trial.Ledger(ctx, d.db)
	if err != nil {
		return trial.Report{}, err
	}
	arrived := d.collector.AwaitDelivered(ctx, committed)
	if ctx.Err() != nil {
		return trial.Report{}, ctx.Err()
	}
	if err := errors.Join(relay.Stop(ctx), d.collector.CatchUp(ctx)); err != nil {
		return trial.Report{}, err
	}
	if arrived != nil {
		d.display.Note("%v\n%s", arrived, relay.Log())
	}
	d.showNow()
	return trial.Check(committed, d.collector.Records()), nil
}

// restartKafka kills the broker when a third of the work is done, and starts it
// again.
func (d *demo) restartKafka(ctx context.Context) error {
	for d.work.Progress().Done < transactions/3 {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
	d.kafka.Kill()
	d.display.Note("Kafka is killed and started again")
	if err := d.kafka.Start(ctx); err != nil {
		return err
	}
	d.display.Note("Kafka is back")
	return nil
}

// show shows how far things have come until ctx ends.
func (d *demo) show(ctx context.Context) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			d.showNow()
		}
	}
}

func (d *demo) showNow() {
	p := d.work.Progress()
	events, repeats := d.collector.Events()
	d.display.Progress("transactions %d (%d aborted)  Kafka has %d events, %d repeats  relay killed %d times",
		p.Done, p.Aborted, events, repeats, d.kills.Load())
}
