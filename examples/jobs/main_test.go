package main

import (
	"testing"

	"github.com/gooutbox/outbox/examples/internal/exampletest"
	"github.com/gooutbox/outbox/internal/servicetest"
)

func TestExample(t *testing.T) {
	t.Parallel()
	servicetest.MongoURL(t)
	exampletest.LastLine(t, run, "accounts=10 sent=9 failed=1")
}
