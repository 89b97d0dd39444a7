package outboxtest

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gooutbox/outbox/core"
)

var errNoJSON = errors.New("no JSON")

// assert compares what came with what is wanted, one by one, and reports all
// that differs.
func assert[V core.Event | core.Job](t T, what string, got []V, want []Matcher[V], text func(V) string) bool {
	t.Helper()
	var b strings.Builder
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			fmt.Fprintf(&b, "\n  %d: missing: want %s", i+1, want[i].text)
		case i >= len(want):
			fmt.Fprintf(&b, "\n  %d: not wanted: %s", i+1, text(got[i]))
		default:
			diffs := want[i].differs(got[i])
			if len(diffs) == 0 {
				continue
			}
			fmt.Fprintf(&b, "\n  %d: %s", i+1, text(got[i]))
			for _, d := range diffs {
				b.WriteString("\n       " + d)
			}
		}
	}
	if b.Len() == 0 {
		return true
	}
	t.Errorf("the %s differ, got %d and want %d:%s", what, len(got), len(want), b.String())
	return false
}
