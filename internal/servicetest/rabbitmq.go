package servicetest

import (
	"testing"

	"github.com/gooutbox/outbox/internal/services"
)

// AMQPURL returns the address of the shared RabbitMQ broker, with user and
// password.
func AMQPURL(t testing.TB) string {
	t.Helper()
	return fromEnvironment(t, amqpVariable)
}

// StartRabbitMQ starts a broker of this test alone, for tests that stop, kill
// or reconfigure it. It is gone when the test ends.
func StartRabbitMQ(t testing.TB, config services.RabbitMQConfig) *services.RabbitMQ {
	t.Helper()
	if !required() && !services.HaveRabbitMQ(t.Context()) {
		missing(t, "RabbitMQ has not been installed")
	}
	broker, err := services.StartRabbitMQ(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := broker.Close(); err != nil {
			t.Errorf("closing RabbitMQ: %v", err)
		}
	})
	return broker
}
