package example

import (
	"fmt"
	"os/exec"
	"syscall"
)

// Process is a program that runs beside the example. Its methods may be called
// by several goroutines at once.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error
}

func (p *Process) start() error {
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", p.cmd, err)
	}
	p.done = make(chan struct{})
	go func() {
		if err := p.cmd.Wait(); err != nil {
			p.err = fmt.Errorf("running %s: %w", p.cmd, err)
		}
		close(p.done)
	}()
	return nil
}

// Stop asks the program to end, waits for it, and returns an error if it failed.
func (p *Process) Stop() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // or it has ended
	<-p.done
	return p.err
}

// Kill ends the program at once (SIGKILL), whatever it is at.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // or it has ended
	<-p.done
}

// Killed tells whether the program has ended by SIGKILL. If it has ended
// otherwise, that is an error.
func (p *Process) Killed() (bool, error) {
	select {
	case <-p.done:
	default:
		return false, nil
	}
	if status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signal() == syscall.SIGKILL {
		return true, nil
	}
	if p.err != nil {
		return false, p.err
	}
	return false, fmt.Errorf("running %s: it has ended", p.cmd)
}
