package servicetest

import (
	"os"
	"testing"
)

// The variables that name the shared servers.
const (
	mongoVariable      = "MONGODB_URL"
	standaloneVariable = "MONGODB_STANDALONE_URL"
	kafkaVariable      = "KAFKA_BROKERS"
	amqpVariable       = "AMQP_URL"
	awsVariable        = "AWS_ENDPOINT_URL"
)

// required tells whether a missing server fails the test.
func required() bool {
	return os.Getenv("CI") == "true" || os.Getenv("OUTBOX_REQUIRE_SERVICES") == "1"
}

// missing ends the test because what it needs is not there. It is the only
// place in the tree that skips a test for want of a server.
func missing(t testing.TB, what string) {
	t.Helper()
	const cure = "run `make test`, or `make services` and set what it prints"
	if required() {
		t.Fatalf("%s: %s", what, cure)
	}
	t.Skipf("%s: %s", what, cure)
}

// fromEnvironment returns the value of the variable that names a shared server.
func fromEnvironment(t testing.TB, variable string) string {
	t.Helper()
	value := os.Getenv(variable)
	if value == "" {
		missing(t, variable+" is not set")
	}
	return value
}
