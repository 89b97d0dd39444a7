// Outbox is the command that runs and looks after an outbox: it relays events,
// makes indexes, checks whether everything that a relay needs is there, shows
// what waits or has failed and why, and lets operators act on it.
//
// Exit statuses:
//
//	0  done; for relay: stopped by a signal, everything in flight settled
//	1  failed; for check: something is not as it must be
//	2  wrong arguments or configuration: nothing was started
//	3  stopped at once by a second signal: what was in flight comes again
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/gooutbox/outbox/internal/config"
)

// Exit statuses, see the package's documentation.
const (
	exitOK = iota
	exitFailed
	exitUsage
	exitAtOnce
)

func main() {
	// First of all: a signal that comes while a relay starts ends it in order.
	ctx, stop := onSignal(context.Background(), os.Stderr)
	status := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

// run executes one command line and returns the exit status. ctx ends what it
// started.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	p := &program{stdout: stdout, stderr: stderr}
	root := p.root()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	if !errors.Is(err, errSaid) {
		fmt.Fprintln(p.redactor.Writer(stderr), "outbox: "+reasonOf(err))
	}
	if _, wrong := errors.AsType[*usageError](err); wrong {
		return exitUsage
	}
	return exitFailed
}

// program is one run of the command.
type program struct {
	stdout, stderr io.Writer
	// redactor hides the secrets of the configuration once it was read.
	redactor config.Redactor
	// sinks are the names of those in the configuration, once it was read.
	sinks []string
}

// errSaid is the error of a command that has printed all there is to say.
var errSaid = errors.New("failed")

// usageError is one of arguments or configuration, found before anything was
// started.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }
