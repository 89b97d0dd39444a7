package kafka_test

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

	"github.com/segmentio/kafka-go"

	"github.com/gooutbox/outbox/consumer"
	"github.com/gooutbox/outbox/consumer/dedupe"
	"github.com/gooutbox/outbox/consumer/dedupe/memory"
	kafkaconsumer "github.com/gooutbox/outbox/consumer/kafka"
	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
	kafkasink "github.com/gooutbox/outbox/sink/kafka"
)

const patience = 2 * time.Minute

func newReader(t testing.TB, topic, group string) *kafka.Reader {
	t.Helper()
	r := kafka.NewReader(kafka.ReaderConfig{
		Brokers: servicetest.Kafka(t), GroupID: group, Topic: topic, MaxWait: 100 * time.Millisecond,
		StartOffset: kafka.FirstOffset, HeartbeatInterval: 500 * time.Millisecond, SessionTimeout: 10 * time.Second,
		JoinGroupBackoff: 100 * time.Millisecond,
	})
	t.Cleanup(func() { _ = r.Close() })
	return r
}

func config(t testing.TB, reader kafkaconsumer.Reader, dead string) kafkaconsumer.Config {
	t.Helper()
	return kafkaconsumer.Config{
		Reader: reader, Consumer: "mailer", Dead: kafkaconsumer.DeadTopic{Brokers: servicetest.Kafka(t), Topic: dead},
		Retry:  consumer.Retry{MaxAttempts: 3, MinBackoff: time.Millisecond, MaxBackoff: 5 * time.Millisecond},
		Logger: slog.New(slog.DiscardHandler),
	}
}

// send delivers leases by the sink.
func send(t testing.TB, topic string, form consumer.Form, leases ...core.Lease) {
	t.Helper()
	s, err := kafkasink.New(kafkasink.Config{Brokers: servicetest.Kafka(t), Topic: topic, Form: form})
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

func lease(id, key string) core.Lease {
	return core.Lease{Source: "/outbox/shop/outbox", Route: "kafka", Fence: 7, Event: core.Event{ID: id, AggregateID: key, Type: "order.placed", Payload: []byte(`{"id":"` + id + `"}`)}}
}

func leases(n, keys int) []core.Lease {
	ls := make([]core.Lease, n)
	for i := range ls {
		ls[i] = lease(fmt.Sprintf("e-%05d", i), fmt.Sprint("key-", i%keys))
	}
	return ls
}

// collected are what handlers got, in order.
type collected struct {
	mu   sync.Mutex
	all  []consumer.Delivery
	most int
	stop context.CancelFunc
}

func (c *collected) add(ds ...consumer.Delivery) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all = append(c.all, ds...); len(c.all) >= c.most {
		c.stop()
	}
}

// inOrder checks that each key's events came in the order in which they were
// sent, after dropping repeats, and that all came.
func inOrder(t *testing.T, all []consumer.Delivery, sent []core.Lease) {
	t.Helper()
	seen := map[string]bool{}
	got := map[string][]string{}
	for _, d := range all {
		if !seen[d.ID] {
			seen[d.ID] = true
			got[d.AggregateID] = append(got[d.AggregateID], d.ID)
		}
	}
	want := map[string][]string{}
	for _, l := range sent {
		want[l.Event.AggregateID] = append(want[l.Event.AggregateID], l.Event.ID)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%d of %d events came, or in another order", len(seen), len(sent))
	}
}

// read takes n messages from the only partition of a topic.
func read(t testing.TB, topic string, n int) []kafka.Message {
	t.Helper()
	r := kafka.NewReader(kafka.ReaderConfig{Brokers: servicetest.Kafka(t), Topic: topic, MaxWait: 100 * time.Millisecond})
	defer func() { _ = r.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var all []kafka.Message
	for range n {
		m, err := r.ReadMessage(ctx)
		if err != nil {
			t.Fatalf("reading %s: %v", topic, err)
		}
		all = append(all, m)
	}
	return all
}

func TestWhatTheSinkSentComesBack(t *testing.T) {
	t.Parallel()
	for _, form := range []consumer.Form{consumer.CloudEvents, consumer.Debezium, consumer.Bare} {
		topic := servicetest.Topic(t, 1)
		l := lease("e-1", "Größe-1")
		l.Event.Headers = map[string]string{"traceparent": "00-1", "X-Shop": "Zürich"}
		l.Event.Tenant, l.Event.Aggregate, l.Event.Version, l.Redriven = "acme", "order", 2, true
		send(t, topic, form, l)
		d, err := kafkaconsumer.Decode(read(t, topic, 1)[0], "")
		if err != nil || d.Form != form || d.ID != "e-1" || d.AggregateID != "Größe-1" || d.Type != "order.placed" || d.Fence != 7 || !d.Redriven ||
			!bytes.Equal(d.Payload, l.Event.Payload) || !reflect.DeepEqual(d.Headers, l.Event.Headers) {
			t.Errorf("%s: %+v, %v", form, d, err)
		}
		if form == consumer.CloudEvents && (d.Tenant != "acme" || d.Aggregate != "order" || d.Version != 2 || d.Source != l.Source) {
			t.Errorf("%s: %+v", form, d)
		}
	}
}

// One message is no event, one is rejected, one fails always, one panics: they
// become dead letters with their reasons, and all others are handled in order.
func TestPoisonBecomesADeadLetterWithItsReason(t *testing.T) {
	t.Parallel()
	for _, batch := range []int{1, 7} {
		t.Run(fmt.Sprint(batch), func(t *testing.T) {
			t.Parallel()
			topic, dead := servicetest.Topic(t, 1), servicetest.Topic(t, 1)
			sent := leases(20, 3)
			send(t, topic, "", sent[:10]...)
			w := &kafka.Writer{Addr: kafka.TCP(servicetest.Kafka(t)...), Topic: topic, RequiredAcks: kafka.RequireAll, BatchTimeout: time.Millisecond}
			junk := kafka.Message{Key: []byte("k"), Value: []byte("junk"), Headers: []kafka.Header{{Key: "x", Value: []byte("y")}}}
			err := w.WriteMessages(t.Context(), junk)
			for errors.Is(err, kafka.UnknownTopicOrPartition) { // the writer has not heard of it yet
				err = w.WriteMessages(t.Context(), junk)
			}
			if err != nil {
				t.Fatal(err)
			}
			_ = w.Close()
			send(t, topic, "", sent[10:]...)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			got := &collected{most: 17, stop: cancel}
			tries := map[string]int{}
			handle := func(_ context.Context, ds []consumer.Delivery) error {
				for _, d := range ds {
					if len(ds) == 1 {
						tries[d.ID]++
					}
					switch d.ID {
					case "e-00003":
						return core.MarkRejected(errors.New("no such customer"))
					case "e-00007":
						return errors.New("the printer is jammed")
					case "e-00012":
						panic("index out of range")
					}
				}
				got.add(ds...)
				return nil
			}
			cfg := config(t, newReader(t, topic, servicetest.Name(t)), dead)
			if batch == 1 {
				err = kafkaconsumer.Run(ctx, cfg, consumer.BatchHandler(handle).Single())
			} else {
				cfg.Batch = batch
				err = kafkaconsumer.RunBatch(ctx, cfg, handle)
			}
			if err != nil {
				t.Fatal(err)
			}
			healthy := slices.DeleteFunc(slices.Clone(sent), func(l core.Lease) bool {
				return l.Event.ID == "e-00003" || l.Event.ID == "e-00007" || l.Event.ID == "e-00012"
			})
			inOrder(t, got.all, healthy)
			if tries["e-00003"] != 1 || tries["e-00007"] != 3 || tries["e-00012"] != 3 {
				t.Errorf("tried: %v", tries)
			}
			for i, want := range []struct{ id, code, reason string }{
				{"e-00003", core.CodeRejected, "no such customer"},
				{"e-00007", core.CodeExhausted, "the printer is jammed"},
				{"", core.CodeUndecodable, "decoding a message: the headers"},
				{"e-00012", core.CodeExhausted, "the handler panicked: index out of range"},
			} {
				m := read(t, dead, i+1)[i]
				headers := map[string]string{}
				for _, h := range m.Headers {
					headers[h.Key] = string(h.Value)
				}
				if headers[consumer.DeadCode] != want.code || !strings.HasPrefix(headers[consumer.DeadReason], want.reason) {
					t.Errorf("dead letter %d: %v", i, headers)
				}
				if want.id == "" {
					if string(m.Value) != "junk" || headers["x"] != "y" || headers[consumer.DeadFrom] != topic+"/0/10" {
						t.Errorf("the undecodable one: %q, %v", m.Value, headers)
					}
					continue
				}
				if d, err := kafkaconsumer.Decode(m, ""); err != nil || d.ID != want.id || !d.DeadLettered {
					t.Errorf("dead letter %d: %+v, %v", i, d, err)
				}
			}
		})
	}
}

// dying is a reader whose commits are lost, as those of a process that dies.
type dying struct{ *kafka.Reader }

func (dying) CommitMessages(context.Context, ...kafka.Message) error {
	return errors.New("the process is dead")
}

// Consumers of one group come and go, and some die before they commit: each
// event has its effect once, and each key keeps its order.
func TestAGroupThatMovesItsPartitions(t *testing.T) {
	t.Parallel()
	topic, dead, group := servicetest.Topic(t, 4), servicetest.Topic(t, 1), servicetest.Name(t)
	sent := leases(1200, 25)
	guard, err := dedupe.New(memory.New(), dedupe.Config{Consumer: "mailer"})
	if err != nil {
		t.Fatal(err)
	}
	effects := &collected{most: len(sent), stop: func() {}}
	handle := guard.BatchHandler(func(_ context.Context, ds []consumer.Delivery) error {
		effects.add(ds...)
		return nil
	})
	// consume runs a consumer until n events more had their effect.
	consume := func(dies bool, n int, more ...core.Lease) {
		send(t, topic, "", more...)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		reader := newReader(t, topic, group)
		defer func() { _ = reader.Close() }()
		effects.mu.Lock()
		effects.most, effects.stop = min(len(effects.all)+n, len(sent)), cancel
		already := len(effects.all) >= len(sent)
		effects.mu.Unlock()
		if already {
			return
		}
		cfg := config(t, reader, dead)
		cfg.Batch = 10
		if dies {
			cfg.Reader = dying{reader}
			cfg.Drain = time.Millisecond
		}
		if err := kafkaconsumer.RunBatch(ctx, cfg, handle); err != nil {
			t.Error(err)
		}
	}
	consume(true, 200, sent[:400]...)
	consume(false, 150, sent[400:500]...)
	var wg sync.WaitGroup
	reader := newReader(t, topic, group)
	other, leave := context.WithCancel(t.Context())
	wg.Go(func() { // shares the group, then leaves it
		if err := kafkaconsumer.RunBatch(other, config(t, reader, dead), handle); err != nil {
			t.Error(err)
		}
		_ = reader.Close()
	})
	consume(true, 300, sent[500:1000]...)
	leave()
	wg.Wait()
	consume(false, len(sent), sent[1000:]...)
	inOrder(t, effects.all, sent)
	if len(effects.all) != len(sent) {
		t.Errorf("%d effects of %d events", len(effects.all), len(sent))
	}
	if got := guard.Stats(); got.Repeated == 0 {
		t.Errorf("nothing was repeated: the test shows nothing: %+v", got)
	}
}

// The end of ctx lets the handler that runs finish, and commits it; what waits
// behind it comes to the next consumer.
func TestAShutdownFinishesWhatRuns(t *testing.T) {
	t.Parallel()
	topic, dead, group := servicetest.Topic(t, 1), servicetest.Topic(t, 1), servicetest.Name(t)
	send(t, topic, "", leases(5, 1)...)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	reader := newReader(t, topic, group)
	first := 0
	err := kafkaconsumer.Run(ctx, config(t, reader, dead), func(ctx context.Context, _ consumer.Delivery) error {
		first++
		cancel()
		return ctx.Err() // it hasn't ended
	})
	if err != nil || first != 1 {
		t.Fatalf("%v, %d handled", err, first)
	}
	if err := reader.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), patience)
	defer cancel()
	got := &collected{most: 4, stop: cancel}
	err = kafkaconsumer.Run(ctx, config(t, newReader(t, topic, group), dead), func(_ context.Context, d consumer.Delivery) error {
		got.add(d)
		return nil
	})
	if err != nil || len(got.all) != 4 || got.all[0].ID != "e-00001" {
		t.Errorf("%v, got %v", err, got.all)
	}
}

// A database that is away stops the partition and counts no attempt.
func TestAnOutageMakesNoDeadLetters(t *testing.T) {
	t.Parallel()
	topic, dead := servicetest.Topic(t, 1), servicetest.Topic(t, 1)
	sent := leases(6, 2)
	send(t, topic, "", sent...)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	got := &collected{most: len(sent), stop: cancel}
	outage := 20
	err := kafkaconsumer.Run(ctx, config(t, newReader(t, topic, servicetest.Name(t)), dead), func(_ context.Context, d consumer.Delivery) error {
		if outage--; outage > 0 {
			return core.MarkUnavailable(errors.New("no primary"))
		}
		got.add(d)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	inOrder(t, got.all, sent)
}

func TestConfigNamesEveryProblem(t *testing.T) {
	t.Parallel()
	err := kafkaconsumer.RunBatch(t.Context(), kafkaconsumer.Config{Form: "avro", Batch: -1, Retry: consumer.Retry{MaxAttempts: -1}}, nil)
	for _, want := range []string{"Reader", "Consumer", "Dead", "Form", "Batch", "MaxAttempts"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is missing in %v", want, err)
		}
	}
}
