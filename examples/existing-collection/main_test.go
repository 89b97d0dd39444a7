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
	exampletest.LastLine(t, run, "orders=25 sent_before=10 sent_now=15 missing=0 phantom=0 left_to_the_old_publisher=0")
}
