//go:build crashpoints

package crash

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// Env is the variable that names the place to die at: NAME, or NAME:N for the
// Nth time it is reached.
const Env = "OUTBOX_CRASH"

var (
	wanted, nth = parse(os.Getenv(Env))
	hits        atomic.Int64
)

// parse reads NAME or NAME:N. Names hold no colon.
func parse(s string) (name string, n int64) {
	name, count, found := strings.Cut(s, ":")
	if !found {
		return name, 1
	}
	n, err := strconv.ParseInt(count, 10, 64)
	if err != nil || n < 1 {
		panic(Env + "=" + s + ": want NAME or NAME:N with N at least 1")
	}
	return name, n
}

// Here sends SIGKILL to this process if OUTBOX_CRASH names this place and it
// was reached as often as wanted. It may be called by several goroutines.
func Here(name string) {
	if name != wanted || hits.Add(1) != nth {
		return
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // nothing after the place runs, however late the signal comes
}
