package main

import (
	"testing"

	"github.com/gooutbox/outbox/examples/internal/exampletest"
	"github.com/gooutbox/outbox/internal/servicetest"
)

func TestExample(t *testing.T) {
	t.Parallel()
	servicetest.MongoURL(t)
	servicetest.AMQPURL(t)
	exampletest.LastLine(t, run, "invoices=10 events=10")
}
