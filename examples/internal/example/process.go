package example

import (
	"fmt"
	"os/exec"
	"syscall"
)

// Process is a program that runs beside the example. Its methods may not be
// called concurrently.
type Process struct{ cmd *exec.Cmd }

// Stop asks the program to end, waits for it, and returns an error if it failed.
// Only one of Stop and Wait is called.
func (p *Process) Stop() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("running %s: %w", p.cmd, err)
	}
	return nil
}

// Kill ends the program at once (SIGKILL), whatever it is at, and does nothing
// if it has ended.
func (p *Process) Kill() {
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait() // it was killed
	}
}

// Wait waits until the program has ended by itself, and tells whether a signal
// killed it; any other failure is an error.
func (p *Process) Wait() (killed bool, err error) {
	err = p.cmd.Wait()
	if status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return status.Signal() == syscall.SIGKILL, nil
	}
	return false, err
}
