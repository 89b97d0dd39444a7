package main

import (
	"testing"

	"github.com/gooutbox/outbox/examples/internal/exampletest"
	servers "github.com/gooutbox/outbox/internal/services"
	"github.com/gooutbox/outbox/internal/servicetest"
)

// The server ends the transactions of services that died after seconds, not
// after a minute.
func TestExample(t *testing.T) {
	servicetest.AMQPURL(t)
	server := servicetest.StartMongod(t, servers.MongodConfig{Parameters: map[string]string{"transactionLifetimeLimitSeconds": "5"}})
	t.Setenv("MONGODB_URL", server.URL())
	exampletest.LastLine(t, run, "orders=200 unfinished=0 violations=0")
}
