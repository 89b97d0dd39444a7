package amqp

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/services"
	"github.com/gooutbox/outbox/internal/servicetest"
	"github.com/gooutbox/outbox/relay"
	"github.com/gooutbox/outbox/store/memory"
)

// A whole relay brings events to a broker that is killed, stopped and frozen
// meanwhile: none is lost, and each key keeps its order.
func TestRelayThroughRestartsOfTheBroker(t *testing.T) {
	t.Parallel()
	broker := servicetest.StartRabbitMQ(t, services.RabbitMQConfig{})
	q := newQueue(t, broker.URL(), nil)
	s := newSink(t, Config{URLs: []string{broker.URL()}, Exchange: q.name, Heartbeat: time.Second, Timeout: 2 * time.Second})
	store := memory.New(memory.Config{})
	ctx, stop := context.WithCancel(t.Context())
	r, err := relay.New(relay.Config{
		Log: store, Sinks: map[string]core.Sink{"amqp": s}, Logger: slog.New(slog.DiscardHandler), Drain: 5 * time.Second,
		Routes: []relay.Route{{Name: "amqp", Sink: "amqp", Timeout: 5 * time.Second}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	var all []core.Lease
	appendEvents := func(n int) {
		for range n {
			key := fmt.Sprint("key-", len(all)%17)
			e := core.Event{ID: fmt.Sprintf("id-%06d", len(all)), AggregateID: key, Type: "t", Payload: []byte("x")}
			if err := store.InTransaction(t.Context(), func(ctx context.Context) error { return store.Append(ctx, e) }); err != nil {
				t.Fatal(err)
			}
			all = append(all, core.Lease{Event: e})
		}
	}
	arrived := func(n int) func() bool {
		return func() bool { return len(unique(q.ids(t))) >= n }
	}
	appendEvents(500)
	eventually(t, arrived(200))
	for _, fault := range []func() error{
		func() error { broker.Kill(); appendEvents(500); return broker.Start(t.Context()) },
		func() error { appendEvents(500); return broker.Restart(t.Context()) },
		func() error {
			if err := broker.Pause(); err != nil {
				return err
			}
			appendEvents(500)
			eventually(t, func() bool { return s.alive() == nil }) // given up by its heartbeats
			return broker.Resume()
		},
	} {
		if err := fault(); err != nil {
			t.Fatal(err)
		}
		eventually(t, arrived(len(all)-300))
	}
	for end := time.Now().Add(2 * time.Minute); !arrived(len(all))(); {
		if time.Now().After(end) {
			t.Fatalf("%d of %d events arrived", len(unique(q.ids(t))), len(all))
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	t.Logf("%d events, %d repeats", len(all), checkHistory(t, all, q.ids(t)))
}

func unique(ids []string) map[string]bool {
	seen := map[string]bool{}
	for _, id := range ids {
		seen[id] = true
	}
	return seen
}
