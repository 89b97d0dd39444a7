package outboxtest_test

import (
	"context"
	"fmt"
	"os"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/outboxtest"
	"github.com/gooutbox/outbox/relay"
)

// shop is a program under test: it knows an outbox by the methods that it calls.
type shop struct {
	outbox interface {
		InTransaction(ctx context.Context, fn func(ctx context.Context) error) error
		Append(ctx context.Context, events ...core.Event) error
		Enqueue(ctx context.Context, jobs ...core.Job) ([]core.Receipt, error)
	}
}

// place writes an order, and tells of it, in one transaction.
func (s shop) place(ctx context.Context, id string, total int) error {
	return s.outbox.InTransaction(ctx, func(ctx context.Context) error {
		payload := fmt.Appendf(nil, `{"id": %q, "total": %d}`, id, total)
		if err := s.outbox.Append(ctx, core.Event{AggregateID: id, Type: "order.placed", Payload: payload}); err != nil {
			return err
		}
		_, err := s.outbox.Enqueue(ctx, core.Job{Sink: "mail", Event: core.Event{AggregateID: id, Type: "mail.confirmation"}})
		return err
	})
}

// printed stands for a *testing.T.
type printed struct{}

func (printed) Helper() {}

func (printed) Errorf(format string, args ...any) { fmt.Fprintf(os.Stdout, format+"\n", args...) }

func Example() {
	ctx, t := context.Background(), printed{} // a *testing.T
	recorder := outboxtest.NewRecorder()
	if err := (shop{recorder}).place(ctx, "order-7", 42); err != nil {
		t.Errorf("placing an order: %v", err)
	}
	recorder.AssertAppended(t, outboxtest.Like(core.Event{Type: "order.placed", Payload: []byte(`{"total": 42, "id": "order-7"}`)}))
	recorder.AssertEnqueued(t, outboxtest.LikeJob(core.Job{Sink: "mail"}))
	fmt.Println(len(recorder.Events()), "event and", len(recorder.Jobs()), "job")
	// Output: 1 event and 1 job
}

// A failed assertion says what differs.
func ExampleRecorder_AssertAppended() {
	ctx, t := context.Background(), printed{}
	recorder := outboxtest.NewRecorder()
	_ = shop{recorder}.place(ctx, "order-7", 42)
	recorder.AssertAppended(t,
		outboxtest.Like(core.Event{Type: "order.placed", AggregateID: "order-8", Payload: []byte(`{"id": "order-7", "total": 43}`)}),
		outboxtest.Like(core.Event{Type: "order.paid"}),
	)
	// Output:
	// the appended events differ, got 1 and want 2:
	//   1: order.placed of order-7
	//        AggregateID: got "order-7", want "order-8"
	//        Payload: got {"id": "order-7", "total": 42}, want {"id": "order-7", "total": 43}
	//   2: missing: want order.paid
}

// The sink refuses the first try of each event; Drain brings them all the same.
func ExampleDrain() {
	ctx := context.Background()
	recorder := outboxtest.NewRecorder()
	if err := (shop{recorder}).place(ctx, "order-7", 42); err != nil {
		panic(err)
	}
	kafka := outboxtest.NewSink().On(outboxtest.Like(core.Event{Type: "order.placed"}), outboxtest.Refuse("no leader"))
	mail := outboxtest.NewSink()
	err := outboxtest.Drain(ctx, recorder.Store(), relay.Config{
		Sinks:   map[string]core.Sink{"kafka": kafka, "mail": mail},
		Routes:  []relay.Route{{Name: "kafka", Sink: "kafka"}},
		Workers: []relay.Worker{{Sink: "mail"}},
	})
	if err != nil {
		panic(err)
	}
	for _, l := range append(kafka.Delivered(), mail.Delivered()...) {
		fmt.Println(l.Event.Type, "at try", l.Attempt)
	}
	// Output:
	// order.placed at try 2
	// mail.confirmation at try 1
}
