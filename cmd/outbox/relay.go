package main

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/spf13/cobra"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/config"
	"github.com/gooutbox/outbox/relay"
)

func (p *program) relayCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "relay",
		Short: "Bring events to their sinks until stopped",
		Long: "Relay runs the routes of a configuration until SIGTERM or SIGINT. Then it reads nothing more, waits\n" +
			"for what is in flight (relay.drain, 30s) and gives its cursors back. A second signal ends it at once.\n" +
			"Run two: one delivers, the other stands by.\n\n" +
			"Exit status: 0 stopped by a signal, everything in flight settled; 1 failed, or something didn't end\n" +
			"within relay.drain; 2 wrong arguments or configuration; 3 stopped at once by a second signal.",
		Args: cobra.NoArgs,
	}
	path := configFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		file, err := p.load(*path)
		if err != nil {
			return err
		}
		return p.relay(cmd.Context(), file)
	}
	return cmd
}

func (p *program) relay(ctx context.Context, file *config.File) (err error) {
	boundMemory()
	logger := newLogger(p.stderr, file.Log, p.redactor)

	parts := parts{logger: logger, meters: noop.NewMeterProvider()}
	health := &health{behind: time.Duration(file.Admin.ReadyLag)}
	if file.Admin.Listen != "" {
		meters, page, err := newMetrics(logger)
		if err != nil {
			return err
		}
		admin, err := listenAdmin(file.Admin.Listen, page, health.verdict, p.redactor, logger)
		if err != nil {
			return err
		}
		defer admin.close()
		parts.meters = meters
		logger.Info("admin listener open", "address", admin.address())
	}

	store, err := awaitStore(ctx, file, parts, health)
	if err != nil && ctx.Err() != nil {
		logger.Info("relay stopped before the store was there", "cause", context.Cause(ctx), "error", err)
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeStore(store)) }()
	parts.store = store
	sinks, err := openSinks(file, parts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeSinks(sinks)) }()

	cfg := relayConfig(file, store, sinks, parts)
	if cfg.Reservations, err = reservations(file, store); err != nil {
		return err
	}
	r, err := relay.New(cfg)
	if err != nil {
		return err
	}
	health.of(r, store)
	info, _ := debug.ReadBuildInfo()
	logger.Info("relay started", "version", versionLine(info), "log", store.Source(), "routes", len(file.Routes))
	said := make(chan struct{})
	unsaid := context.AfterFunc(ctx, func() {
		defer close(said)
		logger.Info("relay stopping", "cause", context.Cause(ctx), "drain", time.Duration(file.Relay.Drain))
	})
	go greet(ctx, store, logger)
	err = r.Run(ctx)
	if !unsaid() {
		<-said // a relay that does nothing may end before the line is out
	}
	if err != nil {
		return err
	}
	logger.Info("relay stopped")
	return nil
}

// checkHint goes with what a store or sink says when it is away.
const checkHint = "`outbox check` tells more"

// greetTimeout is after which time people who start a relay are told that its
// store doesn't answer. The relay itself says so later, when it gave up once.
const greetTimeout = 2 * time.Second

// greet logs that the store doesn't answer, if so.
func greet(ctx context.Context, s store, logger *slog.Logger) {
	limited, cancel := context.WithTimeout(ctx, greetTimeout)
	defer cancel()
	if err := s.ping(limited); err != nil && ctx.Err() == nil {
		logger.Info("the store doesn't answer yet", "error", err, "hint", checkHint)
	}
}

// awaitStore opens the store, waiting as long as what its address needs is
// away.
func awaitStore(ctx context.Context, file *config.File, p parts, health *health) (store, error) {
	wait := backoff.NewExponentialBackOff(backoff.WithMaxElapsedTime(0), backoff.WithMaxInterval(30*time.Second))
	for warned := false; ; {
		store, err := openStore(ctx, file, p)
		if err == nil || core.ResultOf("", err).Outcome != core.Unavailable {
			return store, err
		}
		health.waitsFor(err)
		if !warned {
			p.logger.Warn("waiting for the store", "error", err, "hint", checkHint)
			warned = true
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(wait.NextBackOff()):
		}
	}
}

func relayConfig(file *config.File, s store, sinks map[string]core.Sink, p parts) relay.Config {
	cfg := relay.Config{
		Log:             s,
		Queue:           s,
		Sinks:           sinks,
		Logger:          p.logger,
		MeterProvider:   p.meters,
		Drain:           max(time.Duration(file.Relay.Drain), 1), // 0 would be the default
		CursorLease:     time.Duration(file.Relay.CursorLease),
		Retention:       time.Duration(file.Relay.Retention),
		CleanInterval:   time.Duration(file.Relay.CleanInterval),
		MaxRedeliveries: file.Queue.MaxRedeliveries,
	}
	if cfg.Retention == 0 {
		cfg.Retention = -1
	}
	if file.Relay.Owner != "" {
		cfg.Owner = file.Relay.Owner + "/" + rand.Text()
	}
	for _, r := range file.Routes {
		cfg.Routes = append(cfg.Routes, relay.Route{
			Name:          r.Name,
			Sink:          r.Sink,
			Start:         core.Start{Now: r.Start.Now, At: r.Start.At, IncludePublished: r.IncludePublished},
			Match:         relay.Match{Aggregates: r.Match.Aggregates, Types: r.Match.Types},
			Marking:       r.MarkPublished,
			Lanes:         r.Lanes,
			BatchEvents:   r.Batch.Events,
			BatchBytes:    int(r.Batch.Bytes),
			Window:        r.Window,
			Timeout:       time.Duration(r.Timeout),
			Backoff:       backoffOf(r.Backoff),
			OutageBackoff: backoffOf(r.OutageBackoff),
			OnFailure:     policies[r.OnFailure],
			MaxAttempts:   r.MaxAttempts,
			MaxParked:     r.MaxParked,
		})
	}
	for _, w := range file.Workers {
		worker := relay.Worker{
			Sink:          w.Sink,
			Lanes:         w.Lanes,
			BatchJobs:     w.BatchJobs,
			Lease:         time.Duration(w.Lease),
			Timeout:       time.Duration(w.Timeout),
			Backoff:       backoffOf(w.Backoff),
			TypeBackoff:   map[string]relay.Backoff{},
			OutageBackoff: backoffOf(w.OutageBackoff),
			Rate:          float64(w.Rate),
			TenantRate:    float64(w.TenantRate),
		}
		for name, change := range w.TypeBackoff {
			worker.TypeBackoff[name] = backoffOf(change.In(w.Backoff))
		}
		cfg.Workers = append(cfg.Workers, worker)
	}
	return cfg
}

// policies are the values of on_failure.
var policies = map[string]relay.FailurePolicy{"skip": relay.Skip, "hold": relay.Hold}

func backoffOf(b config.Backoff) relay.Backoff {
	return relay.Backoff{Initial: time.Duration(b.Initial), Max: time.Duration(b.Max)}
}
