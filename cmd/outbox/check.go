package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/config"
	"github.com/gooutbox/outbox/relay"
)

func (p *program) checkCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check whether everything that the relay needs is there",
		Long: "Check connects to the store and the sinks and looks for what the relay needs: versions, rights, topics,\n" +
			"clocks. It changes nothing. Exit status 1 tells that a check failed; warnings don't count.",
		Args: cobra.NoArgs,
	}
	path := configFlag(cmd)
	asJSON := cmd.Flags().Bool("json", false, "print one JSON object")
	timeout := cmd.Flags().Duration("timeout", 10*time.Second, "how long each store and sink may take to answer")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		file, err := p.load(*path)
		if err != nil {
			return err
		}
		found := &findings{}
		p.check(cmd.Context(), file, *timeout, found)
		w := p.redactor.Writer(p.stdout)
		if *asJSON {
			err = found.json(w)
		} else {
			err = found.table(w)
		}
		if err == nil && found.failed() {
			err = errSaid
		}
		return err
	}
	return cmd
}

func (p *program) check(ctx context.Context, file *config.File, timeout time.Duration, found *findings) {
	parts := parts{logger: newLogger(p.stderr, config.Log{Level: "error", Format: "text"}, p.redactor), meters: noop.NewMeterProvider()}
	var sample []core.Event
	var sampleErr error
	func() {
		checking, cancel := withTimeout(ctx, timeout)
		defer cancel()
		s, err := openStore(checking, file, parts)
		if err != nil {
			found.fail(file.Store.Type, reasonOf(err), "")
			sampleErr = err
			return
		}
		parts.store = s
		s.check(checking, file, found)
		reading, cancel := withTimeout(ctx, timeout)
		defer cancel()
		sample, sampleErr = s.newest(reading, sampleSize)
	}()
	if parts.store != nil {
		defer func() { _ = closeStore(parts.store) }()
	}
	sinks, err := openSinks(file, parts)
	if err != nil {
		found.fail("sinks", err.Error(), "")
		return
	}
	defer func() { _ = closeSinks(sinks) }()
	for _, name := range slices.Sorted(maps.Keys(sinks)) {
		if !checkSink(ctx, name, sinks[name], timeout, found) {
			continue
		}
		if options, ok := file.Sinks[name].Options.(sampled); ok {
			options.checkSample(ctx, name, leasesFor(file, name, sample), sampleErr, timeout, found)
		}
	}
}

// sampleSize is how many of the newest events of the log are looked at.
const sampleSize = 200

// sampled is implemented by the options of sinks whose destinations depend on
// the events.
type sampled interface {
	// checkSample looks whether the destinations of events of the log are there.
	// sampleErr tells why none could be read.
	checkSample(ctx context.Context, sink string, sample []core.Lease, sampleErr error, timeout time.Duration, found *findings)
}

// leasesFor returns the events that a route brings to the sink.
func leasesFor(file *config.File, sink string, events []core.Event) []core.Lease {
	var leases []core.Lease
	for _, r := range file.Routes {
		match := relay.Match{Aggregates: r.Match.Aggregates, Types: r.Match.Types}
		for i := range events {
			if r.Sink == sink && match.Matches(&events[i]) {
				leases = append(leases, core.Lease{Event: events[i], Route: r.Name})
			}
		}
	}
	return leases
}

// checkSink tells whether the sink answers.
func checkSink(ctx context.Context, name string, sink core.Sink, timeout time.Duration, found *findings) bool {
	label := "sink " + name
	checker, ok := sink.(core.Checker)
	if !ok {
		found.ok(label, "can't be checked before the first event")
		return true
	}
	ctx, cancel := withTimeout(ctx, timeout)
	defer cancel()
	if err := checker.Check(ctx); err != nil {
		found.fail(label, err.Error(), "")
		return false
	}
	found.ok(label, "answers, and takes events")
	return true
}

// withTimeout ends ctx after the time, and says so in its error.
func withTimeout(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %s", timeout))
}
