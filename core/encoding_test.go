package core_test

import (
	"strings"
	"testing"

	"github.com/gooutbox/outbox/core"
)

func TestWithPayloadTellsTypeNotValue(t *testing.T) {
	t.Parallel()
	_, err := core.WithJSON(core.Event{Type: "order.placed"}, map[string]any{"s3cr3t": func() {}})
	if err == nil || !strings.Contains(err.Error(), "order.placed") || !strings.Contains(err.Error(), "map[string]interface {}") {
		t.Fatalf("got %v", err)
	}
	if strings.Contains(err.Error(), "s3cr3t") {
		t.Fatalf("the value stands in %v", err)
	}
}

func TestPositionsCompare(t *testing.T) {
	t.Parallel()
	ordered := []core.Position{{}, {Time: 1}, {Time: 1, Ordinal: 1}, {Time: 2}, {Time: 1 << 63}}
	for i, p := range ordered {
		for j, q := range ordered {
			want := 0
			if i < j {
				want = -1
			} else if i > j {
				want = 1
			}
			if got := p.Compare(q); got != want {
				t.Errorf("%v and %v: got %d, want %d", p, q, got, want)
			}
		}
	}
}
