// Package tests holds what can only be shown by whole processes on real
// servers: relays that are killed, brokers and databases that fail, documents
// from other languages. OUTBOX_SOAK=1 runs the long forms, as `make soak` does;
// the short ones show the same in a few minutes.
package tests

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
)

// soak asks for the long forms.
var soak = os.Getenv("OUTBOX_SOAK") == "1"

// scale is the size of a test: short, or long in a soak.
func scale[T any](short, long T) T {
	if soak {
		return long
	}
	return short
}

func TestMain(m *testing.M) {
	code := m.Run()
	results.print()
	removeRelay()
	removeActor()
	os.Exit(code)
}

// results is what the tests measured, printed as one table at the end, and
// written to the file that OUTBOX_RESULTS names.
var results table

type table struct {
	mu     sync.Mutex
	rows   []string
	counts map[string]int
}

// count counts how often something happened in a test.
func (r *table) count(test, what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.counts == nil {
		r.counts = map[string]int{}
	}
	r.counts[test+"\t"+what]++
}

// add enters a line; the values are formatted by fmt.Sprint.
func (r *table) add(test, what string, values ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rows = append(r.rows, test+"\t"+what+"\t"+strings.Join(values, " "))
}

func (r *table) print() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for what, n := range r.counts {
		r.rows = append(r.rows, fmt.Sprintf("%s\t%d times", what, n))
	}
	slices.Sort(r.rows)
	var text bytes.Buffer
	t := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, row := range r.rows {
		_, _ = fmt.Fprintln(t, row)
	}
	_ = t.Flush()
	_, _ = os.Stdout.Write(text.Bytes())
	if file := os.Getenv("OUTBOX_RESULTS"); file != "" {
		if err := os.WriteFile(file, text.Bytes(), 0o600); err != nil {
			fmt.Fprintln(os.Stderr, "writing the results:", err)
		}
	}
}
