package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/relay"
	sqlitestore "github.com/gooutbox/outbox/store/sqlite"
)

// sqliteBench measures log and queue on a SQLite file, with durable writes.
type sqliteBench struct {
	backlog
	jobs, runs int
	dir        string
	made       int
}

// sqliteFigures are medians.
type sqliteFigures struct {
	// EventsPerSecond is what a relay reads, gives to a sink that does nothing,
	// and settles; AlonePerSecond what the same statements alone do.
	EventsPerSecond      float64 `json:"events_per_s"`
	AloneEventsPerSecond float64 `json:"alone_events_per_s"`
	OfAlone              float64 `json:"of_alone"`
	// JobsPerSecond is the same of jobs, claimed and settled. PlainJobsPerSecond
	// is that of one transaction for each claim and each settlement of one job.
	JobsPerSecond      float64 `json:"jobs_per_s"`
	AloneJobsPerSecond float64 `json:"alone_jobs_per_s"`
	JobsOfAlone        float64 `json:"jobs_of_alone"`
	PlainJobsPerSecond float64 `json:"plain_jobs_per_s"`
}

func benchSQLite(ctx context.Context, _ servers, args []string) (err error) {
	var b sqliteBench
	flags := flag.NewFlagSet("bench sqlite", flag.ContinueOnError)
	asJSON := flags.Bool("json", false, "print one JSON object")
	flags.IntVar(&b.events, "events", 100_000, "events in the backlog")
	flags.IntVar(&b.jobs, "jobs", 10_000, "jobs in the backlog")
	flags.IntVar(&b.size, "size", 500, "bytes of a payload")
	flags.IntVar(&b.keys, "keys", 1000, "different keys")
	flags.IntVar(&b.runs, "runs", 3, "runs of each kind, interleaved; the median counts")
	flags.StringVar(&b.dir, "dir", "", "folder of the files, on the disk that is to be measured; by default a temporary one")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if b.events < 1 || b.jobs < 1 || b.runs < 1 || b.keys < 1 {
		return errors.New("--events, --jobs, --runs and --keys must be at least 1")
	}
	if b.dir, err = os.MkdirTemp(b.dir, "outbox-bench-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	figures, err := b.measure(ctx)
	if err != nil {
		return err
	}
	if *asJSON {
		return json.NewEncoder(os.Stdout).Encode(figures)
	}
	fmt.Printf("%d events and %d jobs of %d bytes, medians of %d\n", b.events, b.jobs, b.size, b.runs)
	fmt.Printf("log:   %.0f events/s, %.0f alone, %.2f of alone\n", figures.EventsPerSecond, figures.AloneEventsPerSecond, figures.OfAlone)
	fmt.Printf("queue: %.0f jobs/s, %.0f alone, %.2f of alone; %.0f one by one\n",
		figures.JobsPerSecond, figures.AloneJobsPerSecond, figures.JobsOfAlone, figures.PlainJobsPerSecond)
	return nil
}

func (b *sqliteBench) measure(ctx context.Context) (sqliteFigures, error) {
	var times [5][]result
	for range b.runs {
		for i, run := range []func(context.Context) (float64, error){
			b.drainLog, b.readAlone, b.drainQueue,
			func(ctx context.Context) (float64, error) { return b.claimAlone(ctx, claimSize) },
			func(ctx context.Context) (float64, error) { return b.claimAlone(ctx, 1) },
		} {
			seconds, err := run(ctx)
			if err != nil {
				return sqliteFigures{}, err
			}
			times[i] = append(times[i], result{Seconds: seconds})
		}
	}
	perSecond := func(results []result, n int) float64 {
		return float64(n) / median(results, func(r result) float64 { return r.Seconds })
	}
	f := sqliteFigures{
		EventsPerSecond: perSecond(times[0], b.events), AloneEventsPerSecond: perSecond(times[1], b.events),
		JobsPerSecond: perSecond(times[2], b.jobs), AloneJobsPerSecond: perSecond(times[3], b.jobs),
		PlainJobsPerSecond: perSecond(times[4], b.plainJobs()),
	}
	f.OfAlone, f.JobsOfAlone = f.EventsPerSecond/f.AloneEventsPerSecond, f.JobsPerSecond/f.AloneJobsPerSecond
	return f, nil
}

// plainJobs is how many jobs are claimed one by one: that takes long.
func (b *sqliteBench) plainJobs() int { return min(b.jobs, 1000) }

// open makes a file of its own, with what store writes into it.
func (b *sqliteBench) open(ctx context.Context) (*sqlitestore.Store, error) {
	b.made++
	s, err := sqlitestore.New(filepath.Join(b.dir, strconv.Itoa(b.made)+".db"), sqlitestore.Config{})
	if err != nil {
		return nil, err
	}
	err = s.Migrate(ctx)
	return s, err
}

// storeRate is how many events or jobs one transaction of a backlog writes.
const storeRate = 500

func (b *sqliteBench) fill(ctx context.Context, n int, write func(s *sqlitestore.Store, tx *sql.Tx, events []core.Event) error) (*sqlitestore.Store, error) {
	s, err := b.open(ctx)
	if err != nil {
		return nil, err
	}
	payload := b.payload()
	for done := 0; done < n; done += storeRate {
		events := make([]core.Event, min(storeRate, n-done))
		for i := range events {
			events[i] = core.Event{
				Aggregate: "order", AggregateID: "order-" + strconv.Itoa((done+i)%b.keys), Type: "order.placed",
				ContentType: "application/json", Payload: payload,
			}
		}
		if err := s.InTransaction(ctx, func(tx *sql.Tx) error { return write(s, tx, events) }); err != nil {
			return nil, fmt.Errorf("storing the backlog: %w", err)
		}
	}
	return s, nil
}

func (b *sqliteBench) fillLog(ctx context.Context) (*sqlitestore.Store, error) {
	return b.fill(ctx, b.events, func(s *sqlitestore.Store, tx *sql.Tx, events []core.Event) error {
		return s.Append(ctx, tx, events...)
	})
}

func (b *sqliteBench) fillQueue(ctx context.Context, n int) (*sqlitestore.Store, error) {
	return b.fill(ctx, n, func(s *sqlitestore.Store, tx *sql.Tx, events []core.Event) error {
		jobs := make([]core.Job, len(events))
		for i := range events {
			jobs[i] = core.Job{Event: events[i], Sink: queueSink}
		}
		_, err := s.Enqueue(ctx, tx, jobs...)
		return err
	})
}

// nothing is a sink that takes everything.
type nothing struct{ done *finish }

func (nothing) Capabilities() core.Capabilities { return core.Capabilities{PrefixPerKey: true} }

func (n nothing) Deliver(_ context.Context, leases []core.Lease) []core.Result {
	results := make([]core.Result, len(leases))
	for i := range results {
		results[i].Outcome = core.Delivered
	}
	n.done.delivered(int64(len(leases)))
	return results
}

func (nothing) Close(context.Context) error { return nil }

// drain runs a relay until n deliveries are done and settled, and returns how
// long that took.
func (b *sqliteBench) drain(ctx context.Context, s *sqlitestore.Store, n int, cfg relay.Config) (float64, error) {
	ctx, finished := context.WithCancel(ctx)
	defer finished()
	cfg.Queue = s
	cfg.Sinks = map[string]core.Sink{queueSink: nothing{&finish{left: int64(n), finished: finished}}}
	cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	r, err := relay.New(cfg)
	if err != nil {
		return 0, err
	}
	started := time.Now()
	err = r.Run(ctx) // ends when all is settled
	return time.Since(started).Seconds(), err
}

func (b *sqliteBench) drainLog(ctx context.Context) (float64, error) {
	s, err := b.fillLog(ctx)
	if err != nil {
		return 0, err
	}
	seconds, err := b.drain(ctx, s, b.events, relay.Config{Log: s, Routes: []relay.Route{{Name: "bench", Sink: queueSink}}})
	if err != nil {
		return 0, err
	}
	stats, err := s.Stats(ctx)
	if err == nil && (len(stats.Cursors) != 1 || stats.Cursors[0].Settled != int64(b.events)) {
		err = fmt.Errorf("not all of %d events are settled: %+v", b.events, stats.Cursors)
	}
	return seconds, errors.Join(err, s.Close())
}

func (b *sqliteBench) drainQueue(ctx context.Context) (float64, error) {
	s, err := b.fillQueue(ctx, b.jobs)
	if err != nil {
		return 0, err
	}
	seconds, err := b.drain(ctx, s, b.jobs, relay.Config{Workers: []relay.Worker{{Sink: queueSink}}})
	if err != nil {
		return 0, err
	}
	stats, err := s.Stats(ctx)
	if err == nil && stats.Completed != int64(b.jobs) {
		err = fmt.Errorf("%d of %d jobs are completed", stats.Completed, b.jobs)
	}
	return seconds, errors.Join(err, s.Close())
}
