package services

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

// Run provides the selected servers, runs a command that finds them in its
// environment, and stops them. It returns the command's exit status; 128 and
// the signal's number for one that a signal ended. Signals go to the command.
func Run(ctx context.Context, selection Selection, command []string) (status int, err error) {
	if len(command) == 0 {
		return 0, errors.New("running a command: there is none")
	}
	if err := selection.validate(); err != nil {
		return 0, err
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	defer signal.Stop(signals)

	wanted := selection.missing()
	servers, err := startUnlessSignalled(ctx, signals, wanted, selection)
	if err != nil {
		return 0, err
	}
	defer func() {
		for _, server := range servers {
			err = errors.Join(err, server.Close())
		}
		err = errors.Join(err, Sweep(ctx)) // also what the command's own servers left
	}()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = os.Environ()
	for i, server := range servers {
		cmd.Env = append(cmd.Env, wanted[i].variable+"="+server.address())
	}
	return runCommand(cmd, signals)
}

// startUnlessSignalled is startAll that a signal ends. Before that, what the
// environment names must answer.
func startUnlessSignalled(ctx context.Context, signals <-chan os.Signal, wanted []kind, selection Selection) ([]server, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	started := make(chan struct{})
	defer close(started)
	go func() {
		select {
		case sig := <-signals:
			cancel(fmt.Errorf("got signal %q", sig))
		case <-started:
		}
	}()
	if err := useGiven(ctx, selection.given()); err != nil {
		return nil, err
	}
	return startAll(ctx, wanted, selection.Ports, func(name string) (*folder, error) { return newFolder(ctx, name) })
}

// runCommand runs a command to its end and passes signals on.
func runCommand(cmd *exec.Cmd, signals <-chan os.Signal) (int, error) {
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("running %s: %w", cmd.Path, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case sig := <-signals:
			// A terminal has sent its Ctrl-C to the command, too.
			if sig != syscall.SIGINT || !onTerminal() {
				_ = cmd.Process.Signal(sig)
			}
		case err := <-ended:
			var exit *exec.ExitError
			if err != nil && !errors.As(err, &exit) {
				return 0, fmt.Errorf("running %s: %w", cmd.Path, err)
			}
			if state, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && state.Signaled() {
				return 128 + int(state.Signal()), nil
			}
			return cmd.ProcessState.ExitCode(), nil
		}
	}
}

func onTerminal() bool {
	info, err := os.Stdin.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
