package main

import (
	"os"
	"runtime/debug"
)

// boundMemory makes the garbage collector keep the process small, unless the
// user has set GOGC or GOMEMLIMIT: what a relay holds is bounded by batches and
// windows, so that collecting earlier costs little.
func boundMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50)
	}
}
