package services

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"
)

// CreateTopic creates a topic and returns when all its partitions take
// messages. Config holds topic settings such as max.message.bytes; nil is none.
func (k *Kafka) CreateTopic(ctx context.Context, name string, partitions int, config map[string]string) error {
	return CreateTopic(ctx, k.PlainBrokers(), name, partitions, config)
}

// CreateTopic is [Kafka.CreateTopic] on any broker without TLS and SASL.
func CreateTopic(ctx context.Context, brokers []string, name string, partitions int, config map[string]string) error {
	topic := kafka.TopicConfig{Topic: name, NumPartitions: partitions, ReplicationFactor: 1}
	for setting, value := range config {
		topic.ConfigEntries = append(topic.ConfigEntries, kafka.ConfigEntry{ConfigName: setting, ConfigValue: value})
	}
	return withKafkaClient(brokers, func(client *kafka.Client) error {
		if err := createTopic(ctx, client, topic); err != nil {
			return fmt.Errorf("creating topic %s: %w", name, err)
		}
		return awaitLeaders(ctx, client, name, partitions)
	})
}

// createTopic asks again while the controller doesn't see the broker: one that
// was slow to send its heartbeat is fenced for a moment.
func createTopic(ctx context.Context, client *kafka.Client, topic kafka.TopicConfig) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		answer, err := client.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{topic}})
		if err == nil {
			err = answer.Errors[topic.Topic]
		}
		if !errors.Is(err, kafka.BrokerNotAvailable) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// DeleteTopic deletes a topic on any broker without TLS and SASL.
func DeleteTopic(ctx context.Context, brokers []string, name string) error {
	return withKafkaClient(brokers, func(client *kafka.Client) error {
		answer, err := client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{name}})
		if err == nil {
			err = answer.Errors[name]
		}
		if err != nil {
			return fmt.Errorf("deleting topic %s: %w", name, err)
		}
		return nil
	})
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
			return fmt.Errorf("waiting for topic %s: %w", topic, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// leaders asks each partition for its end: only its leader answers that.
func leaders(ctx context.Context, client *kafka.Client, topic string, partitions int) error {
	requests := make([]kafka.OffsetRequest, 0, partitions)
	for partition := range partitions {
		requests = append(requests, kafka.LastOffsetOf(partition))
	}
	found, err := client.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{topic: requests}})
	if err != nil {
		return fmt.Errorf("asking for the ends of the partitions: %w", err)
	}
	if len(found.Topics[topic]) < partitions {
		return errors.New("asking for the ends of the partitions: some are missing")
	}
	for _, partition := range found.Topics[topic] {
		if partition.Error != nil {
			return fmt.Errorf("asking for the end of partition %d: %w", partition.Partition, partition.Error)
		}
	}
	return nil
}

// withKafkaClient lends a client whose view of the cluster is fresh.
func withKafkaClient(brokers []string, use func(*kafka.Client) error) error {
	transport := &kafka.Transport{DialTimeout: 2 * time.Second, MetadataTTL: 100 * time.Millisecond}
	defer transport.CloseIdleConnections()
	return use(&kafka.Client{Addr: kafka.TCP(brokers...), Timeout: 10 * time.Second, Transport: transport})
}
