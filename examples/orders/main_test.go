package main

import (
	"testing"

	"github.com/gooutbox/outbox/examples/internal/exampletest"
	"github.com/gooutbox/outbox/internal/servicetest"
)

func TestExample(t *testing.T) {
	t.Parallel()
	servicetest.MongoURL(t)
	servicetest.Kafka(t)
	exampletest.LastLine(t, run, "orders=20 events=40 missing=0 phantom=0 out_of_order=0 miscounted=0")
}
