package main

import (
	"strings"
	"testing"

	"github.com/gooutbox/outbox/internal/servicetest"
)

func TestExample(t *testing.T) {
	t.Parallel()
	servicetest.MongoURL(t)
	servicetest.Kafka(t)
	var out strings.Builder
	if err := run(t.Context(), &out); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	want := "orders=20 events=40 missing=0 phantom=0 out_of_order=0"
	if last := lines[len(lines)-1]; last != want {
		t.Errorf("ends with %q, want %q", last, want)
	}
}
