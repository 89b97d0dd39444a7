package services

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// running tells whether the very process that was recorded runs: its command
// line names the server's folder, which no other process has. A number that
// the system gave to another program since then doesn't match.
func (r record) running() bool {
	line, err := commandLine(r.PID)
	return err == nil && r.Dir != "" && strings.Contains(line, r.Dir)
}

// signal asks the recorded process to end, or kills it.
func (r record) signal(kill bool) error {
	if !r.running() {
		return nil
	}
	sig := syscall.SIGTERM
	if kill {
		sig = syscall.SIGKILL
	}
	if err := syscall.Kill(r.PID, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("ending %s (process %d): %w", r.Kind, r.PID, err)
	}
	return nil
}

// commandLine returns how a process was started. It is empty for one that has
// ended and that its parent has not collected yet.
func commandLine(pid int) (string, error) {
	if runtime.GOOS == "linux" {
		text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
		return string(text), err
	}
	text, err := exec.Command("ps", "-ww", "-o", "args=", "-p", strconv.Itoa(pid)).Output()
	return string(text), err
}
