// Package exampletest runs examples as tests.
package exampletest

import (
	"context"
	"io"
	"strings"
	"sync"
	"testing"
)

// output takes what several programs of an example print at the same time.
type output struct {
	mu  sync.Mutex
	all strings.Builder
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all.Write(b)
}

func (o *output) text() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all.String()
}

// LastLine runs an example and requires that what it prints ends with a line.
func LastLine(t *testing.T, run func(ctx context.Context, out io.Writer) error, want string) {
	t.Helper()
	var printed output
	err := run(t.Context(), &printed)
	out := printed.text()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if last := lines[len(lines)-1]; last != want {
		t.Errorf("ends with %q, want %q; all of it:\n%s", last, want, out)
	}
}
