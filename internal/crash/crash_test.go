//go:build crashpoints

package crash_test

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/gooutbox/outbox/internal/crash"
)

// TestMain lets the test binary play the process that dies.
func TestMain(m *testing.M) {
	if os.Getenv("CRASH_TEST_CHILD") == "" {
		os.Exit(m.Run())
	}
	for range 3 {
		crash.Here("test.here")
		_, _ = os.Stdout.WriteString("x")
	}
}

func TestAProcessDiesAtTheNamedPlaceAtTheNthTime(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		env, out string
		killed   bool
	}{
		{env: "", out: "xxx"},
		{env: "test.elsewhere", out: "xxx"},
		{env: "test.here", out: "", killed: true},
		{env: "test.here:3", out: "xx", killed: true},
		{env: "test.here:4", out: "xxx"},
	} {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "CRASH_TEST_CHILD=1", crash.Env+"="+tc.env)
		out, err := cmd.Output()
		if string(out) != tc.out {
			t.Errorf("%s=%q: wrote %q, want %q", crash.Env, tc.env, out, tc.out)
		}
		var exit *exec.ExitError
		killed := errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL
		if killed != tc.killed {
			t.Errorf("%s=%q: ended with %v, want killed %v", crash.Env, tc.env, err, tc.killed)
		}
	}
}
