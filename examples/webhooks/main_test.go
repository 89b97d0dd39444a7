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
	servicetest.AMQPURL(t)
	exampletest.LastLine(t, run, "webhooks=60 forged=6 kafka=60 rabbitmq=30")
}
