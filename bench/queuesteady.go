package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/gooutbox/outbox/core"
)

// steadyReport is how a long run goes: what claims leave behind must not slow
// them down.
type steadyReport struct {
	Seconds int `json:"seconds"`
	Workers int `json:"workers"`
	Lanes   int `json:"lanes"`
	// First and Last are jobs a second in the first ten seconds and in the last.
	First   float64 `json:"first_jobs_per_s"`
	Last    float64 `json:"last_jobs_per_s"`
	OfFirst float64 `json:"of_first"`
	Jobs    int64   `json:"jobs"`
	// RoundTripsPerJob counts the commands of the workers.
	RoundTripsPerJob float64 `json:"round_trips_per_job"`
}

// measureSteady keeps some jobs ready while workers deliver, and counts.
func (b *queueBench) measureSteady(ctx context.Context, length time.Duration, s shape) (report steadyReport, err error) {
	const span = 10 * time.Second
	length = max(length, 2*span)
	report = steadyReport{Seconds: int(length.Seconds()), Workers: s.workers, Lanes: s.lanes}
	err = b.withDatabase(ctx, func() error {
		store, collection, err := b.newQueue(ctx)
		if err != nil {
			return err
		}
		var delivered, enqueued atomic.Int64
		sink := core.SinkFunc(func(context.Context, core.Lease) error {
			delivered.Add(1)
			return nil
		})
		rs, err := b.newRelays(ctx, collection, "stream", s, sink)
		if err != nil {
			return err
		}
		defer rs.close(ctx)
		running, finished := context.WithTimeout(ctx, length)
		defer finished()
		feed := func(ctx context.Context) error {
			if enqueued.Load()-delivered.Load() >= int64(b.jobs) {
				time.Sleep(10 * time.Millisecond)
				return nil
			}
			enqueued.Add(500)
			return b.enqueue(ctx, store, 500, "")
		}
		for enqueued.Load() < int64(b.jobs) {
			if err := feed(ctx); err != nil {
				return err
			}
		}
		ended := make(chan error, 1)
		go func() { ended <- rs.run(running) }()
		fed := make(chan error, 1)
		go func() {
			for running.Err() == nil {
				if err := feed(running); err != nil && running.Err() == nil {
					fed <- err
					finished()
					return
				}
			}
			fed <- nil
		}()
		started := time.Now()
		time.Sleep(span)
		report.First = float64(delivered.Load()) / time.Since(started).Seconds()
		time.Sleep(length - 2*span)
		before, began := delivered.Load(), time.Now()
		<-running.Done()
		report.Last = float64(delivered.Load()-before) / time.Since(began).Seconds()
		report.OfFirst, report.Jobs = report.Last/report.First, delivered.Load()
		report.RoundTripsPerJob = float64(rs.commands.Load()) / float64(report.Jobs)
		if err := <-ended; err != nil {
			return err
		}
		return <-fed
	})
	return report, err
}

func (r steadyReport) print() {
	fmt.Printf("%d seconds, %d workers of %d lanes, %d jobs\n", r.Seconds, r.Workers, r.Lanes, r.Jobs)
	fmt.Printf("first 10 s: %.0f jobs/s, last 10 s: %.0f jobs/s, %.2f of the first; %.3f round trips a job\n",
		r.First, r.Last, r.OfFirst, r.RoundTripsPerJob)
}
