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
	exampletest.LastLine(t, run, "orders=200 unfinished=0 violations=0")
}
