package example

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/gooutbox/outbox/consumer"
	kafkaconsumer "github.com/gooutbox/outbox/consumer/kafka"
)

// Topic reads a topic of one partition, to see what a relay has sent.
type Topic struct {
	Name   string
	Client *kafka.Client
	// Read is how many messages were read, repeats included.
	Read int64

	reader *kafka.Reader
	seen   map[string]bool
}

// OpenTopic reads a topic from its beginning. It need not exist yet. The caller
// must Close it.
func OpenTopic(name string) *Topic {
	return &Topic{
		Name: name, Client: &kafka.Client{Addr: kafka.TCP(KafkaBrokers()...)},
		reader: kafka.NewReader(kafka.ReaderConfig{Brokers: KafkaBrokers(), Topic: name, Partition: 0, MaxWait: 100 * time.Millisecond}),
		seen:   map[string]bool{},
	}
}

// Next waits for the next event that isn't a repeat.
func (t *Topic) Next(ctx context.Context) (consumer.Delivery, error) {
	for {
		m, err := t.reader.ReadMessage(ctx)
		switch {
		case errors.Is(err, kafka.UnknownTopicOrPartition), errors.Is(err, kafka.LeaderNotAvailable):
			select { // it has still to be created
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
			}
			continue
		case err != nil:
			return consumer.Delivery{}, fmt.Errorf("reading topic %s after %d events: %w", t.Name, len(t.seen), err)
		}
		t.Read = m.Offset + 1
		d, err := kafkaconsumer.Decode(m, "")
		if err != nil || !t.seen[d.ID] {
			t.seen[d.ID] = true
			return d, err
		}
	}
}

// Count is how many events were read.
func (t *Topic) Count() int { return len(t.seen) }

// Close deletes the topic, and others.
func (t *Topic) Close(others ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err := t.Client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: append(others, t.Name)})
	return errors.Join(t.reader.Close(), err)
}
