package servicetest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
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

// Topic creates a topic of this test alone on the shared broker, with leaders
// for all its partitions. Settings are pairs like "max.message.bytes=2097152".
// It is deleted when the test ends.
func Topic(t testing.TB, partitions int, settings ...string) string {
	t.Helper()
	return TopicOn(t, Kafka(t), partitions, settings...)
}

// TopicOn is [Topic] on a broker that listens without TLS and SASL at these
// addresses.
func TopicOn(t testing.TB, brokers []string, partitions int, settings ...string) string {
	t.Helper()
	topic := kafka.TopicConfig{Topic: uniqueName(t, 200), NumPartitions: partitions, ReplicationFactor: 1}
	for _, setting := range settings {
		name, value, ok := strings.Cut(setting, "=")
		if !ok {
			t.Fatalf("topic setting %q: want name=value", setting)
		}
		topic.ConfigEntries = append(topic.ConfigEntries, kafka.ConfigEntry{ConfigName: name, ConfigValue: value})
	}
	client := &kafka.Client{Addr: kafka.TCP(brokers...), Timeout: 10 * time.Second, Transport: &kafka.Transport{}}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupTime)
		defer cancel()
		if _, err := client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{topic.Topic}}); err != nil {
			t.Logf("deleting the test's topic %s: %v", topic.Topic, err)
		}
		client.Transport.(*kafka.Transport).CloseIdleConnections()
	})
	answer, err := client.CreateTopics(t.Context(), &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{topic}})
	if err != nil {
		t.Fatalf("creating topic %s: %v", topic.Topic, err)
	}
	if err := answer.Errors[topic.Topic]; err != nil {
		t.Fatalf("creating topic %s: %v", topic.Topic, err)
	}
	if err := awaitLeaders(t.Context(), client, topic.Topic, partitions); err != nil {
		t.Fatalf("waiting for topic %s: %v", topic.Topic, err)
	}
	return topic.Topic
}

// awaitLeaders returns when every partition has a leader: a broker
// acknowledges a topic a little before it can be written.
func awaitLeaders(ctx context.Context, client *kafka.Client, topic string, partitions int) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		err := leaders(ctx, client, topic, partitions)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func leaders(ctx context.Context, client *kafka.Client, topic string, partitions int) error {
	conn, err := kafka.DialContext(ctx, "tcp", strings.Split(client.Addr.String(), ",")[0])
	if err != nil {
		return fmt.Errorf("reading the topic's partitions: %w", err)
	}
	defer conn.Close() //nolint:errcheck // read only
	found, err := conn.ReadPartitions(topic)
	if err != nil {
		return fmt.Errorf("reading the topic's partitions: %w", err)
	}
	if len(found) < partitions {
		return fmt.Errorf("topic has %d of %d partitions", len(found), partitions)
	}
	for _, partition := range found {
		if partition.Error != nil || partition.Leader.Port == 0 {
			return fmt.Errorf("partition %d has no leader", partition.ID)
		}
	}
	return nil
}
