package main

import (
	"strings"
	"testing"

	"github.com/gooutbox/outbox/internal/servicetest"
)

func TestExample(t *testing.T) {
	t.Parallel()
	servicetest.MongoURL(t)
	var out strings.Builder
	if err := run(t.Context(), &out); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	if want := "accounts=10 sent=9 failed=1\n"; out.String() != want {
		t.Errorf("it wrote %q, want %q", &out, want)
	}
}
