package amqp

import (
	"strings"
	"testing"

	"github.com/rabbitmq/amqp091-go"

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
		q, b := newQueue(t, broker.URL(), nil), newBreaker(t, broker.Address())
		var last *Sink
		return sinktest.Destination{
			Open: func(t testing.TB) core.Sink {
				s, err := New(Config{
					URLs:            []string{strings.Replace(broker.URL(), broker.Address(), b.Address(), 1)},
					Exchange:        "{{ with .Tenant }}{{ . }}{{ else }}" + q.name + "{{ end }}",
					MaxMessageBytes: 65_536,
				})
				if err != nil {
					t.Fatal(err)
				}
				last = s
				return s
			},
			Received: q.messages,
			TooLarge: 70_000,
			Reject:   rejected(),
			Spoil: append(rejected(),
				func(e *core.Event) { e.Tenant = q.name + "-missing" },
				func(e *core.Event) { e.Tenant = "amq.direct" }, // nothing is bound there
			),
			Refuse: func(t testing.TB) (func(*core.Event), func()) {
				other := servicetest.Name(t)
				admin(t, broker.URL(), func(ch *amqp091.Channel) error {
					return ch.ExchangeDeclare(other, "fanout", true, false, false, false, nil)
				})
				return func(e *core.Event) { e.Tenant = other }, func() {
					admin(t, broker.URL(), func(ch *amqp091.Channel) error { return ch.QueueBind(q.name, "", other, false, nil) })
				}
			},
			Steps: steps(b, func() *Sink { return last }),
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
		func(e *core.Event) { e.Headers["cloudEvents:x"] = "1" },
		func(e *core.Event) { e.ID = "" },
		func(e *core.Event) { e.CorrelationID = strings.Repeat("c", 300) },
		func(e *core.Event) { e.Type = strings.Repeat("t", 300) },
		func(e *core.Event) { e.Tenant = "no\nexchange" },
		func(e *core.Event) { e.Payload = make([]byte, 70_000) },
	}
}

// steps are the questions of a sink to its broker, in their order. All but the
// last are asked on a new connection only.
func steps(b *servicetest.Breaker, sink func() *Sink) []sinktest.Step {
	step := func(name string, ask, answer method, stores bool) sinktest.Step {
		return sinktest.Step{Name: name, Stores: stores, Repeats: stores, Break: func(t testing.TB, when sinktest.When) func() bool {
			if !stores {
				b.Cut()
				eventually(t, func() bool { return sink().alive() == nil })
			}
			return b.Arm(when, ask.in, answer.in)
		}}
	}
	return []sinktest.Step{
		step("log in", method{10, 11}, method{10, 30}, false),
		step("open the virtual host", method{10, 40}, method{10, 41}, false),
		step("look for the exchange", method{40, 10}, method{40, 11}, false),
		step("open a channel", method{20, 10}, method{20, 11}, false),
		step("ask for confirms", method{85, 10}, method{85, 11}, false),
		step("publish", method{60, 40}, method{60, 80}, true),
	}
}
