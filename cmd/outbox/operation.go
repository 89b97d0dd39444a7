package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/gooutbox/outbox/internal/config"
)

// How long the commands of operators take at most, unless told otherwise.
const (
	lookTimeout = time.Minute
	actTimeout  = 10 * time.Minute
)

// operation makes cmd one that asks the store something, or tells it. do gets
// the arguments and prints what it found.
func (p *program) operation(cmd *cobra.Command, timeout time.Duration, do func(ctx context.Context, s store, args []string, out output) error) *cobra.Command {
	path := configFlag(cmd)
	asJSON := cmd.Flags().Bool("json", false, "print one JSON object")
	limit := cmd.Flags().Duration("timeout", timeout, "give up after this `time`")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		file, err := p.loadStore(*path)
		if err != nil {
			return err
		}
		ctx, cancel := withTimeout(cmd.Context(), *limit)
		defer cancel()
		logger := newLogger(p.stderr, config.Log{Level: "warn", Format: "text"}, p.redactor)
		s, err := openStore(ctx, file, parts{logger: logger, meters: noop.NewMeterProvider()})
		if err != nil {
			return err
		}
		err = do(ctx, s, args, output{p.redactor.Writer(p.stdout), *asJSON})
		switch {
		case ctx.Err() == nil:
		case errors.Is(err, context.DeadlineExceeded):
			err = fmt.Errorf("%w: %w; see --timeout", context.Cause(ctx), err)
		case errors.Is(err, context.Canceled):
			err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
		if closeErr := closeStore(s); err == nil {
			err = closeErr
		}
		return err
	}
	return cmd
}

// wants refuses another number of arguments, and says which are wanted.
func wants(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n {
			return fmt.Errorf("got %s: want %s", countOf(int64(len(args)), "argument"), strings.TrimSuffix(cmd.UseLine(), " [flags]"))
		}
		return nil
	}
}

// output is where a command prints what it found, in one of two forms.
type output struct {
	w      io.Writer
	asJSON bool
}

// print writes object as JSON, or what text puts on a page.
func (o output) print(object any, text func(*page)) error {
	if o.asJSON {
		enc := json.NewEncoder(o.w)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		return enc.Encode(object)
	}
	var p page
	text(&p)
	_, err := io.WriteString(o.w, p.String())
	return err
}
