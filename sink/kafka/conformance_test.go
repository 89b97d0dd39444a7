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
	broker := servicetest.StartKafka(t, services.KafkaConfig{HeapMB: 256})
	sinktest.Run(t, sinktest.Harness{New: func(t testing.TB) sinktest.Destination {
		topic := servicetest.TopicOn(t, broker.PlainBrokers(), 3, "max.message.bytes=65536")
		return sinktest.Destination{
			Open: func(t testing.TB) core.Sink {
				s, err := New(Config{Brokers: broker.Brokers(), Topic: "{{ with .Tenant }}{{ . }}{{ else }}" + topic + "{{ end }}"})
				if err != nil {
					t.Fatal(err)
				}
				return s
			},
			Received: func(t testing.TB) []sinktest.Message {
				var messages []sinktest.Message
				for _, m := range readAll(t, broker.PlainBrokers(), topic) {
					messages = append(messages, sinktest.Message{ID: header(m, "ce_id"), Key: string(m.Key), Payload: m.Value})
				}
				return messages
			},
			TooLarge: 70_000,
			Spoil: []func(*core.Event){
				func(e *core.Event) { e.Headers["ce_x"] = "1" },
				func(e *core.Event) { e.ID = "" },
				func(e *core.Event) { e.Tenant = "no topic!" },
				func(e *core.Event) { e.Tenant = topic + "-missing" },
				func(e *core.Event) { e.Payload = make([]byte, 70_000) },
				func(e *core.Event) { e.Payload = make([]byte, largestRequest) },
			},
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
