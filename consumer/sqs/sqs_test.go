package sqs_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/gooutbox/outbox/consumer"
	"github.com/gooutbox/outbox/consumer/dedupe"
	"github.com/gooutbox/outbox/consumer/dedupe/memory"
	sqsconsumer "github.com/gooutbox/outbox/consumer/sqs"
	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
	sqssink "github.com/gooutbox/outbox/sink/sqs"
)

const patience = time.Minute

// queues of a test.
type queues struct {
	cfg       aws.Config
	client    *sqs.Client
	name      string
	url, dead string
}

func newQueues(t testing.TB, fifo bool) queues {
	t.Helper()
	cfg := aws.Config{
		Region: "eu-west-1", BaseEndpoint: aws.String(servicetest.AWSEndpoint(t)),
		Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""),
	}
	q := queues{cfg: cfg, client: sqs.NewFromConfig(cfg)}
	create := func(name string) string {
		attributes := map[string]string{}
		if fifo {
			attributes["FifoQueue"] = "true"
		}
		out, err := q.client.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: &name, Attributes: attributes})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_, _ = q.client.DeleteQueue(context.Background(), &sqs.DeleteQueueInput{QueueUrl: out.QueueUrl})
		})
		return aws.ToString(out.QueueUrl)
	}
	suffix := ""
	if fifo {
		suffix = ".fifo"
	}
	q.name = servicetest.Name(t) + suffix
	q.url, q.dead = create(q.name), create(servicetest.Name(t)+suffix)
	return q
}

func (q queues) send(t testing.TB, form consumer.Form, leases ...core.Lease) {
	t.Helper()
	s, err := sqssink.New(q.cfg, sqssink.Config{Queue: q.name, Form: form})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close(context.WithoutCancel(t.Context())) }()
	for len(leases) > 0 {
		n := min(len(leases), 10)
		for i, r := range s.Deliver(t.Context(), leases[:n]) {
			if r.Outcome != core.Delivered {
				t.Fatalf("lease %d: %v: %v", i, r.Outcome, r.Err)
			}
		}
		leases = leases[n:]
	}
}

// take takes n messages out of a queue.
func (q queues) take(t testing.TB, url string, n int) []types.Message {
	t.Helper()
	var all []types.Message
	for began := time.Now(); len(all) < n; {
		if time.Since(began) > patience {
			t.Fatalf("%d of %d messages came", len(all), n)
		}
		out, err := q.client.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{
			QueueUrl: &url, MaxNumberOfMessages: 10, WaitTimeSeconds: 5,
			MessageAttributeNames: []string{"All"}, MessageSystemAttributeNames: []types.MessageSystemAttributeName{"All"},
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range out.Messages {
			all = append(all, m)
			if _, err := q.client.DeleteMessage(t.Context(), &sqs.DeleteMessageInput{QueueUrl: &url, ReceiptHandle: m.ReceiptHandle}); err != nil {
				t.Fatal(err)
			}
		}
	}
	return all
}

func (q queues) config() sqsconsumer.Config {
	return sqsconsumer.Config{
		Client: q.client, QueueURL: q.url, DeadURL: q.dead, Consumer: "mailer",
		Retry:  consumer.Retry{MaxAttempts: 3, MinBackoff: time.Millisecond, MaxBackoff: 5 * time.Millisecond},
		Logger: slog.New(slog.DiscardHandler),
	}
}

func lease(id, key string) core.Lease {
	return core.Lease{Source: "/outbox/shop/outbox", Route: "sqs", Fence: 7, Event: core.Event{ID: id, AggregateID: key, Type: "order.placed", Payload: []byte(`{"id":"` + id + `"}`)}}
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
	for _, form := range []consumer.Form{consumer.CloudEvents, consumer.Debezium, consumer.Bare} {
		for _, payload := range []string{`{"n":1}`, "", "\x00\xff"} {
			q := newQueues(t, true)
			l := lease("e-1", "k-1")
			l.Event.Headers = map[string]string{"traceparent": "00-1", "X-Shop": "Zürich", "x-empty": "", "x-a": "1", "x-b": "2", "x-c": "3", "x-d": "4"}
			l.Event.Tenant, l.Event.CorrelationID, l.Event.Version, l.Redriven = "acme", "c-1", 2, true
			l.Event.Payload = []byte(payload)
			q.send(t, form, l)
			d, err := sqsconsumer.Decode(q.take(t, q.url, 1)[0], "")
			if err != nil || d.Form != form || d.ID != "e-1" || d.AggregateID != "k-1" || d.Type != "order.placed" || d.Fence != 7 || !d.Redriven ||
				string(d.Payload) != payload || !reflect.DeepEqual(d.Headers, l.Event.Headers) {
				t.Errorf("%s %q: %+v, %v", form, payload, d, err)
			}
			if form == consumer.CloudEvents && (d.Tenant != "acme" || d.Version != 2 || d.Source != l.Source || d.CorrelationID != "c-1") {
				t.Errorf("%s: %+v", form, d)
			}
		}
	}
}

func TestPoisonBecomesADeadLetterWithItsReason(t *testing.T) {
	t.Parallel()
	for _, fifo := range []bool{false, true} {
		t.Run(fmt.Sprint(fifo), func(t *testing.T) {
			t.Parallel()
			q := newQueues(t, fifo)
			sent := leases(20, 3)
			for i := range sent { // more than SQS has attributes for
				sent[i].Event.Tenant, sent[i].Event.CorrelationID, sent[i].Event.Aggregate = "acme", "c", "order"
			}
			q.send(t, "", sent...)
			junk := &sqs.SendMessageInput{QueueUrl: &q.url, MessageBody: aws.String("junk"), MessageAttributes: map[string]types.MessageAttributeValue{
				"bytes": {DataType: aws.String("Binary"), BinaryValue: []byte{1}}, "n": {DataType: aws.String("Number"), StringValue: aws.String("7")},
			}}
			if fifo {
				junk.MessageGroupId, junk.MessageDeduplicationId = aws.String("g"), aws.String("d")
			}
			if _, err := q.client.SendMessage(t.Context(), junk); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			got := &collected{most: 18, stop: func() {}}
			ended := make(chan error, 1)
			go func() {
				ended <- sqsconsumer.Run(ctx, q.config(), func(_ context.Context, d consumer.Delivery) error {
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
			for _, m := range q.take(t, q.dead, 3) {
				text := func(name string) string { return aws.ToString(m.MessageAttributes[name].StringValue) }
				d, err := sqsconsumer.Decode(m, "")
				if err == nil && (!d.DeadLettered || d.Tenant != "acme" || d.CorrelationID != "c" || d.Aggregate != "order") {
					t.Errorf("the dead letter has not all of the event: %+v", d)
				}
				if err != nil && (aws.ToString(m.Body) != "junk" || len(m.MessageAttributes["bytes"].BinaryValue) != 1 || aws.ToString(m.MessageAttributes["n"].DataType) != "Number") {
					t.Errorf("the undecodable one: %v", m.MessageAttributes)
				}
				reasons[d.ID] = text(consumer.DeadCode) + " " + text(consumer.DeadAttempts) + " " + text(consumer.DeadReason)
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
			if healthy := slices.DeleteFunc(sent, func(l core.Lease) bool { return l.Event.ID == "e-00003" || l.Event.ID == "e-00007" }); fifo {
				inOrder(t, got.all, healthy)
			} else if len(got.all) != len(healthy) {
				t.Errorf("%d of %d handled", len(got.all), len(healthy))
			}
		})
	}
}

// counting counts the calls that extend visibilities, and can fail them.
type counting struct {
	*sqs.Client
	extended atomic.Int64
	broken   atomic.Bool
}

func (c *counting) ChangeMessageVisibilityBatch(ctx context.Context, in *sqs.ChangeMessageVisibilityBatchInput, opts ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityBatchOutput, error) {
	if c.broken.Load() {
		return nil, errors.New("the network is away")
	}
	out, err := c.Client.ChangeMessageVisibilityBatch(ctx, in, opts...)
	if err == nil && in.Entries[0].VisibilityTimeout > 0 {
		c.extended.Add(1)
	}
	return out, err
}

// A handler that takes longer than the visibility keeps its message.
func TestVisibilityIsExtendedWhileAMessageIsHeld(t *testing.T) {
	t.Parallel()
	q := newQueues(t, false)
	q.send(t, "", lease("e-1", "k"))
	client := &counting{Client: q.client}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cfg := q.config()
	cfg.Client, cfg.Visibility = client, 3*time.Second
	var runs atomic.Int64
	handle := func(context.Context, consumer.Delivery) error {
		runs.Add(1)
		for client.extended.Load() < 5 && ctx.Err() == nil { // five thirds of it
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
			}
		}
		cancel()
		return nil
	}
	var wg sync.WaitGroup
	for range 2 { // a second consumer waits for it to become visible
		wg.Go(func() {
			if err := sqsconsumer.Run(ctx, cfg, handle); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if runs.Load() != 1 || client.extended.Load() < 5 {
		t.Errorf("handled %d times, extended %d times", runs.Load(), client.extended.Load())
	}
}

// A consumer that can't extend loses its message when the visibility ends: its
// handler's context ends, another consumer gets the message, and the effect
// takes place once.
func TestAMessageWhoseVisibilityEnded(t *testing.T) {
	t.Parallel()
	q := newQueues(t, true)
	sent := leases(3, 3) // the emulator gives a group whose visibility ended in another order
	q.send(t, "", sent...)
	guard, err := dedupe.New(memory.New(), dedupe.Config{Consumer: "mailer", Lease: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	got := &collected{most: len(sent), stop: cancel}
	cut := &counting{Client: q.client}
	cut.broken.Store(true)
	frozen, lost := make(chan struct{}), make(chan struct{})
	var once sync.Once
	first := q.config()
	first.Client, first.Visibility = cut, 3*time.Second
	var wg sync.WaitGroup
	alone, leave := context.WithCancel(ctx)
	wg.Go(func() {
		if err := sqsconsumer.Run(alone, first, func(ctx context.Context, _ consumer.Delivery) error {
			once.Do(func() { close(frozen) })
			<-ctx.Done()
			leave() // before its lane goes on
			return ctx.Err()
		}); err != nil {
			t.Error(err)
		}
		close(lost)
	})
	<-frozen
	wg.Go(func() {
		if err := sqsconsumer.Run(ctx, q.config(), guard.Handler(func(_ context.Context, d consumer.Delivery) error {
			got.add(d)
			return nil
		})); err != nil {
			t.Error(err)
		}
	})
	wg.Wait()
	<-lost
	inOrder(t, got.all, sent)
}

// What runs is finished and deleted; what waits is visible again at once.
func TestAShutdownGivesBackWhatWaits(t *testing.T) {
	t.Parallel()
	q := newQueues(t, true)
	sent := leases(8, 1)
	q.send(t, "", sent...)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cfg := q.config()
	cfg.Visibility = 10 * time.Minute
	first := 0
	err := sqsconsumer.Run(ctx, cfg, func(ctx context.Context, _ consumer.Delivery) error {
		first++
		cancel()
		return ctx.Err() // it hasn't ended
	})
	if err != nil || first != 1 {
		t.Fatalf("%v, %d handled", err, first)
	}
	for i, m := range q.take(t, q.url, 7) {
		if d, err := sqsconsumer.Decode(m, ""); err != nil || d.ID != sent[i+1].Event.ID {
			t.Errorf("message %d is %s, %v", i, d.ID, err)
		}
	}
}
