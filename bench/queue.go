package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"text/tabwriter"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// queueRow is what was measured with one number of workers and lanes: medians.
type queueRow struct {
	// Wake is how workers learn of jobs: poll, or stream.
	Wake    string `json:"wake"`
	Workers int    `json:"workers"`
	Lanes   int    `json:"lanes"`
	// JobsPerSecond is what the relay delivers and settles, PlainJobsPerSecond
	// what one findOneAndUpdate and one updateOne a job do.
	JobsPerSecond      float64 `json:"jobs_per_s"`
	PlainJobsPerSecond float64 `json:"plain_jobs_per_s"`
	OfPlain            float64 `json:"of_plain"`
	// RoundTripsPerJob counts all commands of the workers, from start to stop.
	RoundTripsPerJob      float64 `json:"round_trips_per_job"`
	PlainRoundTripsPerJob float64 `json:"plain_round_trips_per_job"`
}

type queueBench struct {
	servers
	jobs, plainJobs, size, runs int
	workers                     string
	profile                     string

	db   *mongo.Database // of the one that enqueues
	made int             // collections so far
}

func benchQueue(ctx context.Context, s servers, args []string) error {
	b := queueBench{servers: s}
	flags := flag.NewFlagSet("bench queue", flag.ContinueOnError)
	asJSON := flags.Bool("json", false, "print one JSON object")
	flags.IntVar(&b.jobs, "jobs", 10_000, "jobs of a run; with --tenants, of the noisy one; with --seconds, ready at a time")
	flags.IntVar(&b.plainJobs, "plain-jobs", 1000, "jobs of a run of the plain algorithm")
	flags.IntVar(&b.size, "size", 500, "bytes of a job's payload")
	flags.IntVar(&b.runs, "runs", 5, "runs of each kind, interleaved; the median counts")
	flags.StringVar(&b.workers, "workers", "1x1,1x10,4x1,4x10", "workers x lanes to measure with")
	flags.StringVar(&b.profile, "profile", "", "write a CPU profile to this file")
	tenants := flags.Bool("tenants", false, "measure the waits of nine tenants beside a noisy one instead")
	seconds := flags.Int("seconds", 0, "measure a run of so long instead: its first ten seconds and its last")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if b.jobs < 1 || b.plainJobs < 1 || b.runs < 1 || *seconds < 0 {
		return errors.New("--jobs, --plain-jobs and --runs must be at least 1")
	}
	shapes, err := parseShapes(b.workers)
	if err != nil {
		return err
	}
	stop, err := startProfile(b.profile)
	if err != nil {
		return err
	}
	defer stop()
	var out interface{ print() }
	switch {
	case *tenants:
		out, err = b.measureTenants(ctx)
	case *seconds > 0:
		out, err = b.measureSteady(ctx, time.Duration(*seconds)*time.Second, shapes[len(shapes)-1])
	default:
		out, err = b.measureRows(ctx, shapes)
	}
	if err != nil {
		return err
	}
	if *asJSON {
		return json.NewEncoder(os.Stdout).Encode(out)
	}
	out.print()
	return nil
}

// queueRows is the report of the runs side by side.
type queueRows struct {
	Jobs int        `json:"jobs"`
	Runs int        `json:"runs"`
	Rows []queueRow `json:"rows"`
}

func (b *queueBench) measureRows(ctx context.Context, shapes []shape) (report queueRows, err error) {
	report = queueRows{Jobs: b.jobs, Runs: b.runs}
	err = b.withDatabase(ctx, func() error {
		for _, wake := range []string{"poll", "stream"} {
			for _, s := range shapes {
				row, err := b.measureRow(ctx, wake, s)
				if err != nil {
					return err
				}
				report.Rows = append(report.Rows, row)
			}
		}
		return nil
	})
	return report, err
}

func (b *queueBench) measureRow(ctx context.Context, wake string, s shape) (queueRow, error) {
	var ours, plain []result
	for range b.runs {
		one, err := b.drainQueue(ctx, wake, s)
		if err != nil {
			return queueRow{}, err
		}
		other, err := b.drainPlainly(ctx, s)
		if err != nil {
			return queueRow{}, err
		}
		ours, plain = append(ours, one), append(plain, other)
	}
	seconds := func(r result) float64 { return r.Seconds }
	commands := func(r result) float64 { return float64(r.Commands) }
	row := queueRow{
		Wake: wake, Workers: s.workers, Lanes: s.lanes,
		JobsPerSecond:         float64(b.jobs) / median(ours, seconds),
		PlainJobsPerSecond:    float64(b.plainJobs) / median(plain, seconds),
		RoundTripsPerJob:      median(ours, commands) / float64(b.jobs),
		PlainRoundTripsPerJob: median(plain, commands) / float64(b.plainJobs),
	}
	row.OfPlain = row.JobsPerSecond / row.PlainJobsPerSecond
	return row, nil
}

func (r queueRows) print() {
	fmt.Printf("%d jobs, medians of %d\n", r.Jobs, r.Runs)
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(t, "wake\tworkers\tlanes\tjobs/s\tplain/s\tof plain\tround trips/job\t")
	for _, row := range r.Rows {
		_, _ = fmt.Fprintf(t, "%s\t%d\t%d\t%.0f\t%.0f\t%.1f\t%.3f\t\n", row.Wake, row.Workers, row.Lanes, row.JobsPerSecond,
			row.PlainJobsPerSecond, row.OfPlain, row.RoundTripsPerJob)
	}
	_ = t.Flush()
}

// withDatabase runs fn with a database of its own.
func (b *queueBench) withDatabase(ctx context.Context, fn func() error) (err error) {
	client, err := mongo.Connect(options.Client().ApplyURI(b.mongoURL))
	if err != nil {
		return fmt.Errorf("connecting to MongoDB: %w", err)
	}
	defer func() { _ = client.Disconnect(context.WithoutCancel(ctx)) }()
	b.db = client.Database("bench-" + strconv.FormatInt(time.Now().UnixNano(), 36))
	defer func() { err = errors.Join(err, b.db.Drop(context.WithoutCancel(ctx))) }()
	return fn()
}
