package main

import (
	"context"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/gooutbox/outbox/internal/trial"
)

// topics makes the topics of a bench and takes them away again.
type topics struct {
	client     *kafka.Client
	partitions int
}

func newTopics(s servers, partitions int) *topics {
	return &topics{client: trial.NewKafkaClient(s.brokers), partitions: partitions}
}

// make creates a topic that takes messages of 2 MiB, and returns when all its
// partitions have leaders.
func (t *topics) make(ctx context.Context, name string) error {
	answer, err := t.client.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{
		Topic: name, NumPartitions: t.partitions, ReplicationFactor: 1,
		ConfigEntries: []kafka.ConfigEntry{{ConfigName: "max.message.bytes", ConfigValue: "2097152"}},
	}}})
	if err == nil {
		err = answer.Errors[name]
	}
	for err == nil {
		if _, err := t.count(ctx, name); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			err = ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	return fmt.Errorf("creating topic %s: %w", name, err)
}

// count is how many records the topic holds.
func (t *topics) count(ctx context.Context, name string) (int64, error) {
	requests := make([]kafka.OffsetRequest, t.partitions)
	for p := range requests {
		requests[p] = kafka.LastOffsetOf(p)
	}
	answer, err := t.client.ListOffsets(ctx, &kafka.ListOffsetsRequest{
		Topics: map[string][]kafka.OffsetRequest{name: requests},
	})
	if err != nil {
		return 0, fmt.Errorf("asking for the offsets of topic %s: %w", name, err)
	}
	var n int64
	for _, p := range answer.Topics[name] {
		if p.Error != nil {
			return 0, fmt.Errorf("asking for the offsets of topic %s: %w", name, p.Error)
		}
		n += p.LastOffset
	}
	return n, nil
}

func (t *topics) remove(ctx context.Context, names ...string) {
	ctx = context.WithoutCancel(ctx)
	_, _ = t.client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: names}) // it is only disk space
}

func (t *topics) close() { t.client.Transport.(*kafka.Transport).CloseIdleConnections() }
