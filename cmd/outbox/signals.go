package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// sameSignal is within which time a signal counts as the one before it: some
// programs that stop others, such as timeout(1), send it to the process and to
// its group.
const sameSignal = 200 * time.Millisecond

// onSignal returns a context that ends with the first SIGTERM or SIGINT. A
// second one ends the process at once, with exitAtOnce. Call stop to give the
// signals back.
func onSignal(ctx context.Context, stderr io.Writer) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		var first time.Time
		for s := range signals {
			switch {
			case first.IsZero():
				first = time.Now()
				cancel(fmt.Errorf("got the signal %q", s))
			case time.Since(first) > sameSignal:
				fmt.Fprintln(stderr, "outbox: second signal: stopping at once, what was in flight comes again")
				os.Exit(exitAtOnce)
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(signals)
		cancel(context.Canceled)
	}
}
