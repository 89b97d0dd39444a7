package amqp

import (
	"fmt"
	"sync"
	"testing"

	"github.com/rabbitmq/amqp091-go"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
	"github.com/gooutbox/outbox/sink/sinktest"
)

// queue is an exchange of a test alone, and a queue that gets all that goes
// there. What was read stays here, so that it can be read again, also after the
// broker was killed.
type queue struct {
	url, name string
	args      amqp091.Table

	mu   sync.Mutex
	read []amqp091.Delivery
}

// newQueue makes both, under one name. They are deleted when the test ends.
func newQueue(t testing.TB, url string, args amqp091.Table) *queue {
	t.Helper()
	q := &queue{url: url, name: servicetest.Name(t), args: args}
	admin(t, url, func(ch *amqp091.Channel) error { return q.declare(ch) })
	t.Cleanup(func() {
		conn, err := amqp091.Dial(url)
		if err != nil {
			return // a broker of the test's own that is gone
		}
		defer conn.Close() //nolint:errcheck // the test has ended
		if ch, err := conn.Channel(); err == nil {
			_, _ = ch.QueueDelete(q.name, false, false, false)
			_ = ch.ExchangeDelete(q.name, false, false)
		}
	})
	return q
}

func (q *queue) declare(ch *amqp091.Channel) error {
	if err := ch.ExchangeDeclare(q.name, "topic", true, false, false, false, nil); err != nil {
		return err
	}
	if _, err := ch.QueueDeclare(q.name, true, false, false, false, q.args); err != nil {
		return err
	}
	return ch.QueueBind(q.name, "#", q.name, false, nil)
}

// admin runs something on a channel of its own.
func admin(t testing.TB, url string, do func(ch *amqp091.Channel) error) {
	t.Helper()
	conn, err := amqp091.Dial(url)
	if err != nil {
		t.Fatalf("connecting to the broker: %v", err)
	}
	defer conn.Close() //nolint:errcheck // what was done has been answered
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if err := do(ch); err != nil {
		t.Fatal(err)
	}
}

// all returns every message that the queue got so far.
func (q *queue) all(t testing.TB) []amqp091.Delivery {
	t.Helper()
	q.mu.Lock()
	defer q.mu.Unlock()
	admin(t, q.url, func(ch *amqp091.Channel) error {
		state, err := ch.QueueDeclarePassive(q.name, true, false, false, false, nil)
		if err != nil || state.Messages == 0 {
			return err
		}
		deliveries, err := ch.ConsumeWithContext(t.Context(), q.name, "", false, false, false, false, nil)
		if err != nil {
			return err
		}
		for n := range state.Messages {
			d, ok := <-deliveries
			if !ok {
				return fmt.Errorf("reading message %d of %d: the channel ended", n+1, state.Messages)
			}
			q.read = append(q.read, d)
			if n == state.Messages-1 {
				if err := d.Ack(true); err != nil {
					return err
				}
			}
		}
		// An answer to this means that the acknowledgement has arrived.
		_, err = ch.QueueDeclarePassive(q.name, true, false, false, false, nil)
		return err
	})
	return q.read
}

// ids returns the ids of all messages, in order.
func (q *queue) ids(t testing.TB) []string {
	t.Helper()
	var ids []string
	for _, d := range q.all(t) {
		ids = append(ids, d.MessageId)
	}
	return ids
}

func (q *queue) messages(t testing.TB) []sinktest.Message {
	t.Helper()
	var messages []sinktest.Message
	for _, d := range q.all(t) {
		key, _ := d.Headers["cloudEvents:partitionkey"].(string)
		messages = append(messages, sinktest.Message{ID: d.MessageId, Key: key, Payload: d.Body})
	}
	return messages
}

// newSink makes a sink that is closed when the test ends.
func newSink(t testing.TB, cfg Config) *Sink {
	t.Helper()
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(t.Context()) })
	return s
}

// lease makes a lease of an event of this key.
func lease(id, key string) core.Lease {
	return core.Lease{
		Attempt: 1, Source: "/outbox/test/outbox", Route: "amqp", Fence: 7,
		Event: core.Event{ID: id, Type: "thing.changed", Aggregate: "thing", AggregateID: key, Payload: []byte(`{"id":"` + id + `"}`)},
	}
}

// outcomes checks the outcomes of results.
func outcomes(t testing.TB, results []core.Result, want ...core.Outcome) {
	t.Helper()
	if len(results) != len(want) {
		t.Fatalf("%d results, want %d", len(results), len(want))
	}
	for i, r := range results {
		if r.Outcome != want[i] {
			t.Errorf("result %d is %v (%v), want %v", i, r.Outcome, r.Err, want[i])
		}
	}
}
