package services

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// stopTime is how long a server may take to end by itself.
const stopTime = 30 * time.Second

// process is a server's process.
type process struct {
	name string
	pid  int
	log  string // the file that takes its output
	done chan struct{}
	err  error // how it ended; read it after done is closed
}

// launch starts a program. A detached one outlives this process; any other is
// killed when this process ends.
func launch(name, logFile string, detached bool, program string, args ...string) (*process, error) {
	output, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the log of %s: %w", name, err)
	}
	defer output.Close() //nolint:errcheck // the child has its own handle
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = output, output
	cmd.SysProcAttr = attributes(detached)
	p := &process{name: name, log: logFile, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// Linux kills the child when the thread that started it ends, so that
		// thread is kept until the child has ended.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			p.pid = cmd.Process.Pid
		}
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	return p, nil
}

// running tells whether the process has not ended.
func (p *process) running() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// signal sends a signal to a running process.
func (p *process) signal(sig syscall.Signal) error {
	if !p.running() {
		return fmt.Errorf("signalling %s: it isn't running", p.name)
	}
	if err := syscall.Kill(p.pid, sig); err != nil {
		return fmt.Errorf("signalling %s: %w", p.name, err)
	}
	return nil
}

// kill ends the process without notice and returns when it is gone.
func (p *process) kill() {
	if p.running() {
		_ = syscall.Kill(p.pid, syscall.SIGKILL)
		<-p.done
	}
}

// stop asks the process to end and returns when it is gone. One that takes
// longer than [stopTime] is killed, which is an error.
func (p *process) stop() error {
	if !p.running() {
		return nil
	}
	_ = syscall.Kill(p.pid, syscall.SIGCONT) // a paused one can't end
	_ = syscall.Kill(p.pid, syscall.SIGTERM)
	select {
	case <-p.done:
		return nil
	case <-time.After(stopTime):
		p.kill()
		return fmt.Errorf("stopping %s: it took longer than %s and was killed", p.name, stopTime)
	}
}

// await calls ready every few milliseconds until it succeeds. It gives up when
// the process ends or ctx does.
func (p *process) await(ctx context.Context, ready func(ctx context.Context) error) error {
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("waiting for %s: it ended (%w); its last words:\n%s", p.name, p.ended(), p.lastWords())
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w (%w); its last words:\n%s", p.name, context.Cause(ctx), err, p.lastWords())
		case <-time.After(25 * time.Millisecond):
		}
	}
}

func (p *process) ended() error {
	if p.err != nil {
		return p.err
	}
	return errors.New("exit status 0")
}

func (p *process) lastWords() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return tail(string(text[max(0, len(text)-4000):]), 15)
}
