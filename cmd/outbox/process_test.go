package main

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience is how long a test waits for what must happen.
const patience = 30 * time.Second

// process is the program in a process of its own.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended

	mu    sync.Mutex
	text  strings.Builder
	grown chan struct{} // closed when a line comes, and replaced
}

// start starts the program. It is killed at the latest when the test ends.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(os.Args[0], args...), done: make(chan struct{}), grown: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), asProgram+"=1")
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		p.read(stderr)
		_ = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
	})
	return p
}

func (p *process) read(from io.Reader) {
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		p.mu.Lock()
		p.text.WriteString(lines.Text() + "\n")
		close(p.grown)
		p.grown = make(chan struct{})
		p.mu.Unlock()
	}
}

// log is what it has written to standard error so far.
func (p *process) log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// await waits for a line that contains text and returns it.
func (p *process) await(text string) string {
	p.t.Helper()
	deadline := time.After(patience)
	for {
		p.mu.Lock()
		grown := p.grown
		p.mu.Unlock()
		for line := range strings.Lines(p.log()) {
			if strings.Contains(line, text) {
				return line
			}
		}
		select {
		case <-grown:
		case <-p.done:
			if !strings.Contains(p.log(), text) {
				p.t.Fatalf("ended without %q:\n%s", text, p.log())
			}
		case <-deadline:
			p.t.Fatalf("no line with %q:\n%s", text, p.log())
		}
	}
}

// admin waits for the admin listener and returns its base address.
func (p *process) admin() string {
	p.t.Helper()
	_, address, _ := strings.Cut(p.await("admin listener open"), "address=")
	return "http://" + strings.TrimSpace(address)
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// status waits for the end and returns the exit status.
func (p *process) status() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		p.t.Fatalf("doesn't end:\n%s", p.log())
	}
	return p.cmd.ProcessState.ExitCode()
}

// eventually asks again and again until the answer is yes.
func eventually(t *testing.T, what string, ask func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !ask(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("never came: %s", what)
		}
	}
}
