package kafka

import (
	"fmt"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
)

func TestAllReplicasAcknowledgeUnlessConfigured(t *testing.T) {
	t.Parallel()
	for acks, want := range map[Acks]int16{"": -1, AcksAll: -1, AcksLeader: 1} {
		c := fake(t, []string{"order.placed"})
		asked := make(chan int16, 1)
		c.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
			asked <- req.(*kmsg.ProduceRequest).Acks
			return nil, nil, false
		})
		s := open(t, Config{Brokers: c.ListenAddrs(), Acks: acks})
		s.Deliver(t.Context(), []core.Lease{lease("1", "a")})
		if got := <-asked; got != want {
			t.Errorf("acks %q: the request asks for %d, want %d", acks, got, want)
		}
	}
}

// One request carries all partitions of a broker, up to a bound that also
// bounds memory.
func TestRequestsAreFewAndBounded(t *testing.T) {
	t.Parallel()
	c := fake(t, nil)
	if err := c.CreateTopic("big", 3, map[string]string{"max.message.bytes": fmt.Sprint(4 << 20)}); err != nil {
		t.Fatal(err)
	}
	sizes := make(chan int, 100)
	c.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		total := 0
		for _, s := range setsOf(req.(*kmsg.ProduceRequest)) {
			total += len(s.bytes)
		}
		sizes <- total
		return nil, nil, false
	})
	s := open(t, Config{Brokers: c.ListenAddrs(), Topic: "big"})
	for _, b := range []struct{ events, size, atMost int }{{600, 100, 1}, {24, 1 << 20, 8}} {
		var leases []core.Lease
		for i := range b.events {
			l := lease(fmt.Sprintf("id-%d", i), fmt.Sprintf("key-%d", i))
			l.Event.Payload = make([]byte, b.size)
			leases = append(leases, l)
		}
		for i, r := range s.Deliver(t.Context(), leases) {
			if r.Outcome != core.Delivered {
				t.Fatalf("result %d: %v (%v)", i, r.Outcome, r.Err)
			}
		}
		if n := len(sizes); n > b.atMost {
			t.Errorf("%d events of %d bytes took %d requests, want at most %d", b.events, b.size, n, b.atMost)
		}
		for range len(sizes) {
			if size := <-sizes; size > maxRequestBytes {
				t.Errorf("a request of %d bytes, want at most %d", size, maxRequestBytes)
			}
		}
	}
}

// Keys go by the number of partitions that there are, once the picture of the
// topic has been taken anew.
func TestMorePartitionsAreUsed(t *testing.T) {
	t.Parallel()
	topic := servicetest.Topic(t, 1)
	s := open(t, Config{Brokers: servicetest.Kafka(t), Topic: topic})
	l := lease("1", "order-1")
	if r := s.Deliver(t.Context(), []core.Lease{l})[0]; r.Receipt != topic+"-0@0" {
		t.Fatalf("%v %s (%v)", r.Outcome, r.Receipt, r.Err)
	}
	transport := new(kafkago.Transport)
	defer transport.CloseIdleConnections()
	client := &kafkago.Client{Addr: kafkago.TCP(servicetest.Kafka(t)...), Timeout: 10 * time.Second, Transport: transport}
	res, err := client.CreatePartitions(t.Context(), &kafkago.CreatePartitionsRequest{Topics: []kafkago.TopicPartitionsConfig{{Name: topic, Count: 12}}})
	if err == nil {
		err = res.Errors[topic]
	}
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("%s-%d@", topic, partitionOf("order-1", 12))
	for end := time.Now().Add(20 * time.Second); ; {
		s.cluster.distrust(topic) // as if a minute had passed
		r := s.Deliver(t.Context(), []core.Lease{l})[0]
		if r.Outcome == core.Delivered && r.Receipt[:len(want)] == want {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%v %s (%v), want %s", r.Outcome, r.Receipt, r.Err, want)
		}
	}
}
