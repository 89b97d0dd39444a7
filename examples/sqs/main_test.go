package main

import (
	"testing"

	"github.com/gooutbox/outbox/examples/internal/exampletest"
	"github.com/gooutbox/outbox/internal/servicetest"
)

func TestExample(t *testing.T) {
	servicetest.MongoURL(t)
	servicetest.AWSEndpoint(t)
	t.Setenv("AWS_REGION", "eu-west-1")
	t.Setenv("AWS_ACCESS_KEY_ID", "test")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "test")
	exampletest.LastLine(t, run, "invoices=10 events=10")
}
