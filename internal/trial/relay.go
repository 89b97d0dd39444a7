package trial

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
)

// BuildRelay builds the outbox command into dir and returns its path. Tests
// pass the tag crashpoints, which lets OUTBOX_CRASH end the process at a named
// place.
func BuildRelay(ctx context.Context, dir string, tags ...string) (string, error) {
	bin := filepath.Join(dir, "outbox")
	args := []string{"build", "-o", bin}
	if len(tags) > 0 {
		args = append(args, "-tags", strings.Join(tags, ","))
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "github.com/gooutbox/outbox/cmd/outbox")...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the relay: %w\n%s", err, out)
	}
	return bin, nil
}

// Relay is a running `outbox relay` process.
type Relay struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error // of Wait; read after done is closed

	mu    sync.Mutex
	lines []string
	grown chan struct{} // closed when a line comes, and replaced
}

// StartRelay starts `outbox relay --config config` with env beside that of this
// process. It does not wait until the relay holds its cursors.
func StartRelay(bin, config string, env ...string) (*Relay, error) {
	r := &Relay{
		cmd:  exec.Command(bin, "relay", "--config", config),
		done: make(chan struct{}), grown: make(chan struct{}),
	}
	r.cmd.Env = append(os.Environ(), env...)
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("starting the relay: %w", err)
	}
	r.cmd.Stdout, r.cmd.Stderr = write, write
	if err := r.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the relay: %w", errors.Join(err, read.Close(), write.Close()))
	}
	_ = write.Close()
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		r.scan(read)
	}()
	go func() {
		defer close(r.done)
		r.err = r.cmd.Wait()
		<-drained
		_ = read.Close()
	}()
	return r, nil
}

func (r *Relay) scan(from io.Reader) {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		r.mu.Lock()
		r.lines = append(r.lines, lines.Text())
		close(r.grown)
		r.grown = make(chan struct{})
		r.mu.Unlock()
	}
}

// Kill ends the process with SIGKILL and waits until it is gone. A process that
// has already ended is fine.
func (r *Relay) Kill() {
	_ = r.cmd.Process.Kill()
	<-r.done
}

// Stop sends SIGTERM and waits; the error tells an exit status other than 0, or
// the end of ctx, after which the process is killed.
func (r *Relay) Stop(ctx context.Context) error {
	r.Signal(syscall.SIGTERM)
	select {
	case <-r.done:
		if r.err != nil {
			return fmt.Errorf("stopping the relay: %w\n%s", r.err, r.Log())
		}
		return nil
	case <-ctx.Done():
		r.Kill()
		return fmt.Errorf("stopping the relay: %w\n%s", ctx.Err(), r.Log())
	}
}

// Signal sends a signal and does not wait.
func (r *Relay) Signal(s os.Signal) { _ = r.cmd.Process.Signal(s) }

// Done is closed when the process has ended.
func (r *Relay) Done() <-chan struct{} { return r.done }

// Killed tells whether the process has ended by SIGKILL, which is also how a
// crash point ends it.
func (r *Relay) Killed() bool {
	select {
	case <-r.done:
		status, ok := r.cmd.ProcessState.Sys().(syscall.WaitStatus)
		return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
	default:
		return false
	}
}

// Log is all that the process wrote so far.
func (r *Relay) Log() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.lines, "\n")
}

// Count is the number of log lines that contain all the given texts.
func (r *Relay) Count(texts ...string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, line := range r.lines {
		if containsAll(line, texts) {
			n++
		}
	}
	return n
}

func containsAll(line string, texts []string) bool {
	for _, text := range texts {
		if !strings.Contains(line, text) {
			return false
		}
	}
	return true
}

// Await waits until a log line contains all the given texts. The error tells
// that ctx or the process ended before.
func (r *Relay) Await(ctx context.Context, texts ...string) error {
	for {
		r.mu.Lock()
		grown := r.grown
		r.mu.Unlock()
		if r.Count(texts...) > 0 {
			return nil
		}
		select {
		case <-grown:
		case <-r.done:
			if r.Count(texts...) > 0 {
				return nil
			}
			return errors.Join(fmt.Errorf("waiting for %q: the relay has ended\n%s", texts, r.Log()), r.err)
		case <-ctx.Done():
			return fmt.Errorf("waiting for %q: %w\n%s", texts, ctx.Err(), r.Log())
		}
	}
}

// PeakMemory is the largest resident memory of the running process so far, in
// bytes, 0 if it can't be known. (What the system tells of an ended process
// begins with the memory of the one that started it.)
func (r *Relay) PeakMemory() int64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		var kilobytes int64
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kilobytes); err == nil {
			return kilobytes << 10
		}
	}
	return 0
}
