package servicetest

import (
	"context"
	"strings"
	"testing"

	"github.com/gooutbox/outbox/internal/services"
)

// Kafka returns the addresses of the shared broker's nodes.
func Kafka(t testing.TB) []string {
	t.Helper()
	var brokers []string
	for broker := range strings.SplitSeq(fromEnvironment(t, kafkaVariable), ",") {
		if broker = strings.TrimSpace(broker); broker != "" {
			brokers = append(brokers, broker)
		}
	}
	return brokers
}

// Topic creates a topic of this test alone on the shared broker; all its
// partitions take messages. Settings are pairs like
// "max.message.bytes=2097152". It is deleted when the test ends.
func Topic(t testing.TB, partitions int, settings ...string) string {
	t.Helper()
	return TopicOn(t, Kafka(t), partitions, settings...)
}

// TopicOn is [Topic] on a broker that listens without TLS and SASL at these
// addresses.
func TopicOn(t testing.TB, brokers []string, partitions int, settings ...string) string {
	t.Helper()
	config := map[string]string{}
	for _, setting := range settings {
		name, value, ok := strings.Cut(setting, "=")
		if !ok {
			t.Fatalf("topic setting %q: want name=value", setting)
		}
		config[name] = value
	}
	topic := uniqueName(t, 200)
	if err := services.CreateTopic(t.Context(), brokers, topic, partitions, config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupTime)
		defer cancel()
		if err := services.DeleteTopic(ctx, brokers, topic); err != nil {
			t.Logf("cleaning up: %v", err)
		}
	})
	return topic
}
