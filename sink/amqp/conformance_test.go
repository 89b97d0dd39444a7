package amqp

import (
	"strings"
	"testing"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/services"
	"github.com/gooutbox/outbox/internal/servicetest"
	"github.com/gooutbox/outbox/sink/sinktest"
)

// The suite runs on a broker of its own, which it kills, starts again and
// stops with a signal.
func TestConformance(t *testing.T) {
	broker := servicetest.StartRabbitMQ(t, services.RabbitMQConfig{})
	sinktest.Run(t, sinktest.Harness{New: func(t testing.TB) sinktest.Destination {
		q := newQueue(t, broker.URL(), nil)
		return sinktest.Destination{
			Open: func(t testing.TB) core.Sink {
				s, err := New(Config{
					URLs:            []string{broker.URL()},
					Exchange:        "{{ with .Tenant }}{{ . }}{{ else }}" + q.name + "{{ end }}",
					MaxMessageBytes: 65_536,
				})
				if err != nil {
					t.Fatal(err)
				}
				return s
			},
			Received: q.messages,
			TooLarge: 70_000,
			Spoil: []func(*core.Event){
				func(e *core.Event) { e.Headers["ce_x"] = "1" },
				func(e *core.Event) { e.Headers["cloudEvents:x"] = "1" },
				func(e *core.Event) { e.ID = "" },
				func(e *core.Event) { e.CorrelationID = strings.Repeat("c", 300) },
				func(e *core.Event) { e.Type = strings.Repeat("t", 300) },
				func(e *core.Event) { e.Tenant = "no\nexchange" },
				func(e *core.Event) { e.Tenant = q.name + "-missing" },
				func(e *core.Event) { e.Tenant = "amq.direct" }, // nothing is bound there
				func(e *core.Event) { e.Payload = make([]byte, 70_000) },
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
