package kafka

import (
	"testing"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/services"
	"github.com/gooutbox/outbox/internal/servicetest"
	"github.com/gooutbox/outbox/sink/sinktest"
)

// The suite runs on a broker of its own, which it kills, starts again and
// stops with a signal.
func TestConformance(t *testing.T) {
	b := newBreaker(t)
	broker := servicetest.StartKafka(t, services.KafkaConfig{HeapMB: 256, Advertised: b.Address()})
	b.To(broker.Brokers()[0])
	sinktest.Run(t, sinktest.Harness{New: func(t testing.TB) sinktest.Destination {
		topic := servicetest.TopicOn(t, broker.PlainBrokers(), 3, "max.message.bytes=65536")
		later := topic + "-later"
		topics := []string{topic}
		var last *Sink
		return sinktest.Destination{
			Open: func(t testing.TB) core.Sink {
				s, err := New(Config{Brokers: []string{b.Address()}, Topic: "{{ with .Tenant }}{{ . }}{{ else }}" + topic + "{{ end }}"})
				if err != nil {
					t.Fatal(err)
				}
				last = s
				return s
			},
			Received: func(t testing.TB) []sinktest.Message {
				var messages []sinktest.Message
				for _, name := range topics {
					for _, m := range readAll(t, broker.PlainBrokers(), name) {
						messages = append(messages, sinktest.Message{ID: header(m, "ce_id"), Key: string(m.Key), Payload: m.Value})
					}
				}
				return messages
			},
			TooLarge: 70_000,
			Reject:   rejected(),
			Spoil: append(rejected(),
				func(e *core.Event) { e.Tenant = topic + "-missing" },
			),
			Refuse: func(t testing.TB) (func(*core.Event), func()) {
				return func(e *core.Event) { e.Tenant = later }, func() {
					if err := services.CreateTopic(t.Context(), broker.PlainBrokers(), later, 1, nil); err != nil {
						t.Fatal(err)
					}
					topics = append(topics, later)
				}
			},
			RefusedApart: true,
			Steps:        steps(b, func() { last.forget(topic) }),
			Cut: func(t testing.TB) func() {
				broker.Kill()
				return func() {
					if err := broker.Start(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
			},
			Freeze: func(t testing.TB) func() {
				if err := broker.Pause(); err != nil {
					t.Fatal(err)
				}
				return func() {
					if err := broker.Resume(); err != nil {
						t.Fatal(err)
					}
				}
			},
		}
	}})
}

func rejected() []func(*core.Event) {
	return []func(*core.Event){
		func(e *core.Event) { e.Headers["ce_x"] = "1" },
		func(e *core.Event) { e.ID = "" },
		func(e *core.Event) { e.Tenant = "no topic!" },
		func(e *core.Event) { e.Payload = make([]byte, 70_000) },
		func(e *core.Event) { e.Payload = make([]byte, largestRequest) },
	}
}
