package kafka

import (
	"context"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/gooutbox/outbox/core"
)

// readAll reads a topic of a broker without TLS and SASL from its beginning to
// its end, partition by partition.
func readAll(t testing.TB, brokers []string, topic string) []kafkago.Message {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	partitions, err := kafkago.DefaultDialer.LookupPartitions(ctx, "tcp", brokers[0], topic)
	if err != nil {
		t.Fatal(err)
	}
	var all []kafkago.Message
	for _, p := range partitions {
		all = append(all, readPartition(t, ctx, p)...)
	}
	return all
}

func readPartition(t testing.TB, ctx context.Context, p kafkago.Partition) []kafkago.Message {
	t.Helper()
	c, err := kafkago.DefaultDialer.DialPartition(ctx, "tcp", "", p)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	end, _ := ctx.Deadline()
	if err := c.SetDeadline(end); err != nil {
		t.Fatal(err)
	}
	first, last, err := c.ReadOffsets()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Seek(first, kafkago.SeekAbsolute); err != nil {
		t.Fatal(err)
	}
	var messages []kafkago.Message
	for first < last {
		m, err := c.ReadMessage(64 << 20)
		if err != nil {
			t.Fatal(err)
		}
		messages = append(messages, m)
		first = m.Offset + 1
	}
	return messages
}

// header is the value of a message's header, "" if it has none.
func header(m kafkago.Message, name string) string {
	for _, h := range m.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}

// open makes a sink that is closed when the test ends.
func open(t testing.TB, cfg Config) *Sink {
	t.Helper()
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Errorf("closing the sink: %v", err)
		}
	})
	return s
}

// lease is a small event under lease.
func lease(id, key string) core.Lease {
	return core.Lease{
		Source: "/outbox/shop/outbox", Route: "kafka", Fence: 42, Attempt: 1,
		Event: core.Event{ID: id, Type: "order.placed", AggregateID: key, Payload: []byte(`{"id":"` + id + `"}`)},
	}
}

func outcomes(results []core.Result) []core.Outcome {
	out := make([]core.Outcome, len(results))
	for i, r := range results {
		out[i] = r.Outcome
	}
	return out
}

// alter changes a setting of a topic.
func alter(t testing.TB, brokers []string, topic, name, value string) {
	t.Helper()
	client := &kafkago.Client{Addr: kafkago.TCP(brokers...), Timeout: 10 * time.Second, Transport: new(kafkago.Transport)}
	defer client.Transport.(*kafkago.Transport).CloseIdleConnections()
	res, err := client.IncrementalAlterConfigs(t.Context(), &kafkago.IncrementalAlterConfigsRequest{
		Resources: []kafkago.IncrementalAlterConfigsRequestResource{{
			ResourceType: kafkago.ResourceTypeTopic, ResourceName: topic,
			Configs: []kafkago.IncrementalAlterConfigsRequestConfig{{Name: name, Value: value, ConfigOperation: kafkago.ConfigOperationSet}},
		}},
	})
	if err == nil {
		err = res.Resources[0].Error
	}
	if err != nil {
		t.Fatal(err)
	}
}
