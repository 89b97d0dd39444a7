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
	func() {
		ctx, cancel := withTimeout(ctx, timeout)
		defer cancel()
		s, err := openStore(ctx, file, parts)
		if err != nil {
			found.fail(file.Store.Type, err.Error(), "")
			return
		}
		defer func() { _ = closeStore(s) }()
		s.check(ctx, file, found)
	}()
	sinks, err := openSinks(file, parts)
	if err != nil {
		found.fail("sinks", err.Error(), "")
		return
	}
	defer func() { _ = closeSinks(sinks) }()
	for _, name := range slices.Sorted(maps.Keys(sinks)) {
		checkSink(ctx, name, sinks[name], timeout, found)
	}
}

func checkSink(ctx context.Context, name string, sink core.Sink, timeout time.Duration, found *findings) {
	label := "sink " + name
	checker, ok := sink.(core.Checker)
	if !ok {
		found.ok(label, "can't be checked before the first event")
		return
	}
	ctx, cancel := withTimeout(ctx, timeout)
	defer cancel()
	if err := checker.Check(ctx); err != nil {
		found.fail(label, err.Error(), "")
		return
	}
	found.ok(label, "answers, and takes events")
}

// withTimeout ends ctx after the time, and says so in its error.
func withTimeout(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %s", timeout))
}
