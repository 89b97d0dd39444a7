package servicetest

import (
	"testing"

	"github.com/gooutbox/outbox/internal/services"
)

// StartMongod starts a MongoDB deployment of this test alone, for tests that
// stop, kill or reconfigure it. It is gone when the test ends.
func StartMongod(t testing.TB, config services.MongodConfig) *services.Mongo {
	t.Helper()
	NeedMongod(t)
	mongod, err := services.StartMongod(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := mongod.Close(); err != nil {
			t.Errorf("closing mongod: %v", err)
		}
	})
	return mongod
}

// NeedFaketime ends the test where the clocks of servers can't be put wrong.
func NeedFaketime(t testing.TB) {
	t.Helper()
	if _, err := services.Faketime(t.Context()); err != nil {
		missing(t, err.Error())
	}
}

// NeedMongod ends the test where mongod can't be started, for tests that start
// one in another process.
func NeedMongod(t testing.TB) {
	t.Helper()
	if !required() && !services.HaveMongod() {
		missing(t, "mongod has not been fetched")
	}
}

// StartKafka starts a broker of this test alone, for tests that stop, kill or
// reconfigure it. It is gone when the test ends.
func StartKafka(t testing.TB, config services.KafkaConfig) *services.Kafka {
	t.Helper()
	if !required() && !services.HaveKafka(t.Context()) {
		missing(t, "Kafka has not been fetched")
	}
	broker, err := services.StartKafka(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := broker.Close(); err != nil {
			t.Errorf("closing Kafka: %v", err)
		}
	})
	return broker
}

// Kcat returns the path of kcat, a command-line client of Kafka.
func Kcat(t testing.TB) string {
	t.Helper()
	path, err := services.Kcat(t.Context())
	if err != nil {
		missing(t, err.Error())
	}
	return path
}
