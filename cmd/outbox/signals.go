package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// onSignal returns a context that ends with the first SIGTERM or SIGINT. A
// second one ends the process at once, with exitAtOnce. Call stop to give the
// signals back.
func onSignal(ctx context.Context, stderr io.Writer) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		for n := 1; ; n++ {
			s, more := <-signals
			switch {
			case !more:
				return
			case n == 1:
				cancel(fmt.Errorf("got the signal %q", s))
			default:
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
