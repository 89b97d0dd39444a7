package outboxtest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/relay"
	"github.com/gooutbox/outbox/store/memory"
)

const (
	// DrainTimeout is when Drain gives up, if its context doesn't end earlier.
	DrainTimeout = 10 * time.Second
	// drainWait stands in for every wait of the relay.
	drainWait = time.Millisecond
)

// Drain runs a relay on the store until everything that is due was delivered or
// has failed for good. All backoffs are cut to a millisecond, so a test needs no
// timers; attempts are counted as ever.
//
// Every sink gets every event of the log, unless cfg says otherwise: with two
// sinks each event goes to both. Of cfg only Sinks is needed: without Routes and
// Workers each sink gets a route and a worker of its own name. Name the Routes to
// send events to some sinks only. Log and Queue are the store, and where no Logger
// is given nothing is logged.
//
// What is not due yet, is paused by an operator or without an end, or waits behind
// a failed event that holds its key stays, and is no error. The error tells what was left after DrainTimeout,
// or when ctx ended; the sink may be away for good. The store may be drained
// again, and is not to be used by another relay meanwhile.
func Drain(ctx context.Context, store *memory.Store, cfg relay.Config) error {
	r, err := relay.New(drained(store, cfg))
	if err != nil {
		return fmt.Errorf("draining: %w", err)
	}
	limited, cancel := context.WithTimeout(ctx, DrainTimeout)
	defer cancel()
	// It goes on until what is left was looked at.
	running, stop := context.WithCancel(context.WithoutCancel(limited))
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- r.Run(running) }()
	left, err := awaitDrained(limited, store, r, drained(store, cfg))
	stop()
	if err := errors.Join(err, <-ended); err != nil {
		return fmt.Errorf("draining: %w", err)
	}
	if len(left) > 0 {
		return fmt.Errorf("draining: %w: still there: %s", context.Cause(limited), strings.Join(left, "; "))
	}
	return nil
}

// drained is the configuration of a relay that never waits long.
func drained(store *memory.Store, cfg relay.Config) relay.Config {
	soon := relay.Backoff{Initial: drainWait, Max: drainWait}
	cfg.Log, cfg.Queue, cfg.Retention = store, store, -1
	cfg.StoreBackoff, cfg.JobPoll = soon, drainWait
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.Routes, cfg.Workers = slices.Clone(cfg.Routes), slices.Clone(cfg.Workers)
	if len(cfg.Routes) == 0 && len(cfg.Workers) == 0 {
		for _, name := range slices.Sorted(maps.Keys(cfg.Sinks)) {
			cfg.Routes = append(cfg.Routes, relay.Route{Name: name, Sink: name})
			cfg.Workers = append(cfg.Workers, relay.Worker{Sink: name})
		}
	}
	for i := range cfg.Routes {
		cfg.Routes[i].Backoff, cfg.Routes[i].OutageBackoff = soon, soon
	}
	for i := range cfg.Workers {
		w := &cfg.Workers[i]
		w.Backoff, w.OutageBackoff, w.TypeBackoff = soon, soon, nil
	}
	return cfg
}

// awaitDrained looks until nothing is left that the relay would deliver, and
// returns what is left when ctx ends.
func awaitDrained(ctx context.Context, store *memory.Store, r *relay.Relay, cfg relay.Config) ([]string, error) {
	tick := time.NewTicker(drainWait)
	defer tick.Stop()
	for {
		left, err := leftOf(context.WithoutCancel(ctx), store, r, cfg)
		if err != nil || len(left) == 0 {
			return left, err
		}
		select {
		case <-ctx.Done():
			return left, nil
		case <-tick.C:
		}
	}
}

// leftOf tells what is still to be delivered.
func leftOf(ctx context.Context, store *memory.Store, r *relay.Relay, cfg relay.Config) ([]string, error) {
	var left []string
	for _, route := range r.Status().Routes {
		if route.State == relay.Standby {
			left = append(left, fmt.Sprintf("route %s waits for its cursor, held by %q", route.Name, route.HeldBy))
			continue
		}
		lag, err := store.Lag(ctx, route.Name)
		if err != nil {
			return nil, err
		}
		if lag.Events > 0 {
			text := fmt.Sprintf("%d events before route %s", lag.Events, route.Name)
			if route.SinkError != "" {
				text += ", whose sink takes nothing: " + route.SinkError
			}
			left = append(left, text)
		}
	}
	open, err := openJobs(ctx, store)
	if err != nil {
		return nil, err
	}
	pauses, err := store.Pauses(ctx)
	if err != nil {
		return nil, err
	}
	paused := func(j *core.JobInfo) bool {
		return slices.ContainsFunc(pauses, func(p core.Pause) bool {
			return (p.By != "" || p.Until.IsZero()) && // else the sink asked for it, and it is over soon
				(p.Scope == core.PauseSink && p.Name == j.Sink || p.Scope == core.PauseTenant && p.Name == j.Tenant)
		})
	}
	held := map[[2]string]bool{}
	for i := range open {
		if j := &open[i]; j.State == core.JobFailed && j.Holds {
			held[[2]string{j.Cursor, j.AggregateID}] = true
		}
	}
	for i := range open {
		j := &open[i]
		switch {
		case j.State == core.JobFailed, paused(j), j.Cursor != "" && held[[2]string{j.Cursor, j.AggregateID}]:
		case j.State == core.JobReady && j.Attempts == 0 && j.Redeliveries == 0 && j.Failure.Code == "" && time.Until(j.AvailableAt) > 0:
		case j.Cursor == "" && !slices.ContainsFunc(cfg.Workers, func(w relay.Worker) bool { return w.Sink == j.Sink }):
		case j.Cursor != "" && !slices.ContainsFunc(cfg.Routes, func(r relay.Route) bool { return r.Name == j.Cursor }):
		default:
			text := fmt.Sprintf("job %s for sink %s is %s", j.ID, j.Sink, j.State)
			if j.Failure.Reason != "" {
				text += ": " + j.Failure.Reason
			}
			left = append(left, text)
		}
	}
	return left, nil
}

// openJobs are the jobs that are to be delivered, and the failed ones. They are
// listed whatever their state: one that goes from one state to another is seen in
// one of them.
func openJobs(ctx context.Context, store *memory.Store) ([]core.JobInfo, error) {
	var all []core.JobInfo
	for after := ""; ; {
		jobs, next, err := store.Jobs(ctx, core.JobFilter{All: true}, after, 1000)
		if err != nil {
			return nil, err
		}
		for i := range jobs {
			if s := jobs[i].State; s == core.JobFailed || !s.Final() {
				all = append(all, jobs[i])
			}
		}
		if after = next; next == "" {
			return all, nil
		}
	}
}
