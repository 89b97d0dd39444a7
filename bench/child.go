package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// result is what a child process reports on its standard output.
type result struct {
	Seconds float64 `json:"seconds"`
	// Commands is how many were sent to MongoDB, those of connecting left out.
	Commands int64 `json:"commands"`
	// RSS is the peak of resident memory in bytes, CPU what was used of it, in
	// seconds.
	RSS int64   `json:"rss"`
	CPU float64 `json:"cpu"`
}

// report prints what this child measured.
func report(r result) error {
	r.RSS, r.CPU = usage()
	return json.NewEncoder(os.Stdout).Encode(r)
}

// child runs this program again with other arguments and returns what it
// reports.
func child(ctx context.Context, args ...string) (result, error) {
	var r result
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	if err := cmd.Run(); err != nil {
		return r, fmt.Errorf("running %s: %w", args[0], err)
	}
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		return r, fmt.Errorf("reading the report of %s: %w", args[0], err)
	}
	return r, nil
}

// usage returns the peak of resident memory and the CPU time of this process.
func usage() (rss int64, cpu float64) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, 0
	}
	cpu = (time.Duration(u.Utime.Nano()) + time.Duration(u.Stime.Nano())).Seconds()
	// Linux's Maxrss begins with that of the parent: VmHWM is this program's.
	if peak, ok := vmHWM(); ok {
		return peak, cpu
	}
	return u.Maxrss * 1024, cpu
}

func vmHWM() (int64, bool) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			return kb * 1024, err == nil
		}
	}
	return 0, false
}
