package amqp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/gooutbox/outbox/consumer"
	amqpconsumer "github.com/gooutbox/outbox/consumer/amqp"
	"github.com/gooutbox/outbox/consumer/dedupe"
	"github.com/gooutbox/outbox/consumer/dedupe/memory"
	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/services"
	"github.com/gooutbox/outbox/internal/servicetest"
	amqpsink "github.com/gooutbox/outbox/sink/amqp"
)

const patience = time.Minute

// broker is where a test's queues are.
type broker struct {
	url         string
	queue, dead string
}

// newBroker makes a queue and one for dead letters on a broker.
func newBroker(t testing.TB, url string) broker {
	t.Helper()
	b := broker{url: url, queue: servicetest.Name(t), dead: servicetest.Name(t)}
	b.channel(t, func(ch *amqp091.Channel) error {
		for _, name := range []string{b.queue, b.dead} {
			if _, err := ch.QueueDeclare(name, true, false, false, false, amqp091.Table{"x-queue-type": "quorum"}); err != nil {
				return err
			}
		}
		return nil
	})
	return b
}

func (b broker) channel(t testing.TB, use func(ch *amqp091.Channel) error) {
	t.Helper()
	conn, err := amqp091.Dial(b.url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if err := use(ch); err != nil {
		t.Fatal(err)
	}
}

// send delivers leases by the sink, to the queue.
func (b broker) send(t testing.TB, form consumer.Form, leases ...core.Lease) {
	t.Helper()
	s, err := amqpsink.New(amqpsink.Config{URLs: []string{b.url}, RoutingKey: b.queue, Form: form})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close(context.WithoutCancel(t.Context())) }()
	for i, r := range s.Deliver(t.Context(), leases) {
		if r.Outcome != core.Delivered {
			t.Fatalf("lease %d: %v: %v", i, r.Outcome, r.Err)
		}
	}
}

// take takes n messages out of a queue.
func (b broker) take(t testing.TB, queue string, n int) []amqp091.Delivery {
	t.Helper()
	var all []amqp091.Delivery
	b.channel(t, func(ch *amqp091.Channel) error {
		messages, err := ch.Consume(queue, "", true, false, false, false, nil)
		if err != nil {
			return err
		}
		for range n {
			select {
			case m := <-messages:
				all = append(all, m)
			case <-time.After(patience):
				return fmt.Errorf("%d of %d messages came", len(all), n)
			}
		}
		return nil
	})
	return all
}

func (b broker) config() amqpconsumer.Config {
	return amqpconsumer.Config{
		Dial:  func() (*amqp091.Connection, error) { return amqp091.Dial(b.url) },
		Queue: b.queue, Consumer: "mailer", Dead: amqpconsumer.DeadExchange{RoutingKey: b.dead},
		Retry:  consumer.Retry{MaxAttempts: 3, MinBackoff: time.Millisecond, MaxBackoff: 5 * time.Millisecond},
		Logger: slog.New(slog.DiscardHandler),
	}
}

func lease(id, key string) core.Lease {
	return core.Lease{Source: "/outbox/shop/outbox", Route: "amqp", Fence: 7, Event: core.Event{ID: id, AggregateID: key, Type: "order.placed", Payload: []byte(`{"id":"` + id + `"}`)}}
}

func leases(n, keys int) []core.Lease {
	ls := make([]core.Lease, n)
	for i := range ls {
		ls[i] = lease(fmt.Sprintf("e-%05d", i), fmt.Sprint("key-", i%keys))
	}
	return ls
}

type collected struct {
	mu   sync.Mutex
	all  []consumer.Delivery
	most int
	stop context.CancelFunc
}

func (c *collected) add(d consumer.Delivery) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all = append(c.all, d); len(c.all) >= c.most {
		c.stop()
	}
}

// inOrder checks that each key's events came in order, and that all came.
func inOrder(t *testing.T, all []consumer.Delivery, sent []core.Lease) {
	t.Helper()
	got, want := map[string][]string{}, map[string][]string{}
	for _, d := range all {
		got[d.AggregateID] = append(got[d.AggregateID], d.ID)
	}
	for _, l := range sent {
		want[l.Event.AggregateID] = append(want[l.Event.AggregateID], l.Event.ID)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%d effects of %d events, or another order: %v", len(all), len(sent), got)
	}
}

func TestWhatTheSinkSentComesBack(t *testing.T) {
	t.Parallel()
	b := newBroker(t, servicetest.AMQPURL(t))
	for _, form := range []consumer.Form{consumer.CloudEvents, consumer.Bare} {
		l := lease("e-1", "Größe-1")
		l.Event.Headers = map[string]string{"traceparent": "00-1", "X-Shop": "Zürich"}
		l.Event.Tenant, l.Event.CorrelationID, l.Event.Version, l.Redriven = "acme", "c-1", 2, true
		l.Event.OccurredAt = time.Date(2026, 3, 4, 5, 6, 7, 120_000_000, time.UTC)
		b.send(t, form, l)
		d, err := amqpconsumer.Decode(b.take(t, b.queue, 1)[0], "")
		at := l.Event.OccurredAt
		if form == consumer.Bare {
			at = at.Truncate(time.Second)
		}
		if err != nil || d.Form != form || d.ID != "e-1" || d.AggregateID != "Größe-1" || d.Type != "order.placed" || d.Fence != 7 || !d.Redriven ||
			!bytes.Equal(d.Payload, l.Event.Payload) || !reflect.DeepEqual(d.Headers, l.Event.Headers) ||
			d.CorrelationID != "c-1" || !d.OccurredAt.Equal(at) || d.ContentType != core.DefaultContentType {
			t.Errorf("%s: %+v, %v", form, d, err)
		}
		if form == consumer.CloudEvents && (d.Tenant != "acme" || d.Version != 2 || d.Source != l.Source) {
			t.Errorf("%s: %+v", form, d)
		}
	}
}

func TestPoisonBecomesADeadLetterWithItsReason(t *testing.T) {
	t.Parallel()
	b := newBroker(t, servicetest.AMQPURL(t))
	sent := leases(20, 3)
	b.send(t, "", sent...)
	b.channel(t, func(ch *amqp091.Channel) error {
		return ch.PublishWithContext(t.Context(), "", b.queue, false, false, amqp091.Publishing{Body: []byte("junk"), Headers: amqp091.Table{"n": int32(1), "t": amqp091.Table{"a": "b"}}})
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	got := &collected{most: 18, stop: func() {}}
	ended := make(chan error, 1)
	go func() {
		ended <- amqpconsumer.Run(ctx, b.config(), func(_ context.Context, d consumer.Delivery) error {
			switch d.ID {
			case "e-00003":
				return core.MarkRejected(errors.New("no such customer"))
			case "e-00007":
				return errors.New("the printer is jammed")
			}
			got.add(d)
			return nil
		})
	}()
	reasons := map[string]string{}
	for _, m := range b.take(t, b.dead, 3) {
		code, _ := m.Headers[consumer.DeadCode].(string)
		reason, _ := m.Headers[consumer.DeadReason].(string)
		attempts, _ := m.Headers[consumer.DeadAttempts].(string)
		from, _ := m.Headers[consumer.DeadFrom].(string)
		if from != b.queue {
			t.Errorf("from %q", from)
		}
		d, err := amqpconsumer.Decode(m, "")
		if err == nil && !d.DeadLettered {
			t.Error("it isn't known as a dead letter")
		}
		if err != nil && (string(m.Body) != "junk" || m.Headers["n"] != int32(1)) {
			t.Errorf("the undecodable one: %q, %v", m.Body, m.Headers)
		}
		reasons[d.ID] = code + " " + attempts + " " + reason
	}
	for id, want := range map[string]string{
		"e-00003": "rejected 1 no such customer", "e-00007": "exhausted 3 the printer is jammed", "": "undecodable 0 decoding a message",
	} {
		if !strings.HasPrefix(reasons[id], want) {
			t.Errorf("%q: %q, want %q", id, reasons[id], want)
		}
	}
	got.mu.Lock()
	got.stop = cancel
	if len(got.all) >= got.most {
		cancel()
	}
	got.mu.Unlock()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	inOrder(t, got.all, slices.DeleteFunc(sent, func(l core.Lease) bool { return l.Event.ID == "e-00003" || l.Event.ID == "e-00007" }))
}

// The broker is killed and restarted while events are handled: all that was not
// acknowledged comes again, and each event has its effect once, in order.
func TestABrokerThatDies(t *testing.T) {
	t.Parallel()
	server := servicetest.StartRabbitMQ(t, services.RabbitMQConfig{})
	b := newBroker(t, server.URL())
	sent := leases(600, 12)
	guard, err := dedupe.New(memory.New(), dedupe.Config{Consumer: "mailer"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	got := &collected{most: len(sent), stop: cancel}
	b.send(t, "", sent[:300]...)
	reached := make(chan struct{})
	var once sync.Once
	ended := make(chan error, 1)
	cfg := b.config()
	cfg.Retry.MaxBackoff = 200 * time.Millisecond
	go func() {
		ended <- amqpconsumer.Run(ctx, cfg, func(ctx context.Context, d consumer.Delivery) error {
			_, err := guard.Once(ctx, d, func(context.Context) error {
				got.add(d)
				return nil
			})
			if d.ID == "e-00150" {
				once.Do(func() { close(reached) })
			}
			return err
		})
	}()
	<-reached
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.send(t, "", sent[300:]...)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	inOrder(t, got.all, sent)
}

// What runs is finished and acknowledged; what waits is given back at once, in
// its order.
func TestAShutdownGivesBackWhatWaits(t *testing.T) {
	t.Parallel()
	b := newBroker(t, servicetest.AMQPURL(t))
	sent := leases(10, 1)
	b.send(t, "", sent...)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	first := 0
	err := amqpconsumer.Run(ctx, b.config(), func(ctx context.Context, _ consumer.Delivery) error {
		first++
		cancel()
		return ctx.Err() // it hasn't ended
	})
	if err != nil || first != 1 {
		t.Fatalf("%v, %d handled", err, first)
	}
	for i, m := range b.take(t, b.queue, 9) {
		if m.MessageId != sent[i+1].Event.ID {
			t.Errorf("message %d is %s", i, m.MessageId)
		}
	}
}

// A message that a quorum queue has given too often ends as a dead letter: what
// handles it may end the process.
func TestAMessageThatIsGivenAgainAndAgain(t *testing.T) {
	t.Parallel()
	b := newBroker(t, servicetest.AMQPURL(t))
	b.send(t, "", lease("e-1", "k"))
	cfg := b.config()
	cfg.MaxDeliveries = 3
	cfg.Hold = time.Millisecond // gives back instead of dying
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		ended <- amqpconsumer.Run(ctx, cfg, func(context.Context, consumer.Delivery) error {
			return core.MarkThrottled(errors.New("later"), time.Minute)
		})
	}()
	m := b.take(t, b.dead, 1)[0]
	if m.Headers[consumer.DeadCode] != core.CodeCrashed {
		t.Errorf("headers %v", m.Headers)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Where no queue takes dead letters nothing is dropped: the message stays.
func TestADeadLetterThatNobodyTakes(t *testing.T) {
	t.Parallel()
	b := newBroker(t, servicetest.AMQPURL(t))
	b.send(t, "", lease("e-1", "k"))
	cfg := b.config()
	cfg.Dead.RoutingKey = "no such queue " + b.dead
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	refused := make(chan struct{})
	var once sync.Once
	cfg.Logger = slog.New(onLog(func(message string) {
		if strings.HasPrefix(message, "publishing a dead letter failed") {
			once.Do(func() { close(refused) })
		}
	}))
	ended := make(chan error, 1)
	go func() {
		ended <- amqpconsumer.Run(ctx, cfg, func(context.Context, consumer.Delivery) error { return core.MarkRejected(errors.New("no")) })
	}()
	<-refused
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if m := b.take(t, b.queue, 1)[0]; m.MessageId != "e-1" {
		t.Errorf("got %q", m.MessageId)
	}
}

type onLog func(message string)

func (onLog) Enabled(context.Context, slog.Level) bool { return true }

func (f onLog) Handle(_ context.Context, r slog.Record) error {
	f(r.Message)
	return nil
}
func (f onLog) WithAttrs([]slog.Attr) slog.Handler { return f }
func (f onLog) WithGroup(string) slog.Handler      { return f }
