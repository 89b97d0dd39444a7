package kafka

import (
	"encoding/binary"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/gooutbox/outbox/internal/servicetest"
	"github.com/gooutbox/outbox/sink/sinktest"
)

// newBreaker reads Kafka's protocol: each request and response begins with the
// size of what follows.
func newBreaker(t testing.TB) *servicetest.Breaker {
	t.Helper()
	return servicetest.NewBreaker(t, servicetest.Framing{Head: 4, Size: func(head []byte) int {
		return 4 + int(binary.BigEndian.Uint32(head))
	}})
}

// steps are the questions of a sink to a broker, in their order. forget makes it
// ask all of them.
func steps(b *servicetest.Breaker, forget func()) []sinktest.Step {
	step := func(name string, asked kmsg.Key, stores bool) sinktest.Step {
		return sinktest.Step{Name: name, Stores: stores, Repeats: stores, Break: func(_ testing.TB, when sinktest.When) func() bool {
			if !stores {
				forget()
			}
			var number uint32 // of the question, which its answer has too
			return b.Arm(when, func(frame []byte) bool {
				number = binary.BigEndian.Uint32(frame[8:])
				return kmsg.Key(binary.BigEndian.Uint16(frame[4:])) == asked
			}, func(frame []byte) bool { return binary.BigEndian.Uint32(frame[4:]) == number })
		}}
	}
	return []sinktest.Step{
		step("ask for versions", kmsg.ApiVersions, false),
		step("ask for the topic", kmsg.Metadata, false),
		step("ask for its limit", kmsg.DescribeConfigs, false),
		step("send", kmsg.Produce, true),
	}
}

// forget makes the sink connect, and ask for the topic, anew.
func (s *Sink) forget(topic string) {
	s.cluster.distrust(topic)
	s.cluster.mu.Lock()
	defer s.cluster.mu.Unlock()
	for _, b := range s.cluster.boot {
		b.drop()
	}
	for _, b := range s.cluster.nodes {
		b.drop()
	}
}
