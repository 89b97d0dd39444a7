// Package exampletest runs examples as tests.
package exampletest

import (
	"context"
	"io"
	"strings"
	"testing"
)

// LastLine runs an example and requires that what it prints ends with a line.
func LastLine(t *testing.T, run func(ctx context.Context, out io.Writer) error, want string) {
	t.Helper()
	var out strings.Builder
	if err := run(t.Context(), &out); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if last := lines[len(lines)-1]; last != want {
		t.Errorf("ends with %q, want %q; all of it:\n%s", last, want, &out)
	}
}
