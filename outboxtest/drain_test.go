package outboxtest_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/outboxtest"
	"github.com/gooutbox/outbox/relay"
)

var anything = outboxtest.Like(core.Event{})

// recorded is an outbox with events of these keys, in this order.
func recorded(t *testing.T, keys ...string) *outboxtest.Recorder {
	t.Helper()
	r := outboxtest.NewRecorder()
	for _, key := range keys {
		if err := r.InTransaction(t.Context(), func(ctx context.Context) error { return r.Append(ctx, event(key)) }); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func enqueue(t *testing.T, r *outboxtest.Recorder, jobs ...core.Job) {
	t.Helper()
	err := r.InTransaction(t.Context(), func(ctx context.Context) error {
		_, err := r.Enqueue(ctx, jobs...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func drain(t *testing.T, r *outboxtest.Recorder, cfg relay.Config) {
	t.Helper()
	if err := outboxtest.Drain(t.Context(), r.Store(), cfg); err != nil {
		t.Fatal(err)
	}
}

func to(sink core.Sink) relay.Config {
	return relay.Config{Sinks: map[string]core.Sink{"events": sink}}
}

func TestDrainBringsEverythingWhateverTheSinkAnswersFirst(t *testing.T) {
	t.Parallel()
	r := recorded(t, "a", "a", "b")
	enqueue(t, r, core.Job{Sink: "events", Event: core.Event{Type: "mail.wanted"}})
	sink := outboxtest.NewSink().
		On(outboxtest.Like(core.Event{Type: "order.placed"}), outboxtest.Refuse("busy"), outboxtest.Away("no connection"),
			outboxtest.Unsure("no answer"), outboxtest.Throttle("slowly", time.Millisecond), outboxtest.Refuse("busy")).
		On(outboxtest.Like(core.Event{Type: "mail.wanted"}), outboxtest.Away("no connection"), outboxtest.Refuse("busy"))
	drain(t, r, to(sink))
	if got := sink.Delivered(); len(got) < 4 {
		t.Errorf("delivered %d", len(got))
	}
	sink = outboxtest.NewSink()
	drain(t, r, to(sink))
	sink.AssertDelivered(t) // nothing comes twice
}

func TestDrainLeavesWhatIsNotDue(t *testing.T) {
	t.Parallel()
	r := recorded(t)
	later := core.Job{Sink: "events", NotBefore: time.Now().Add(time.Hour), Event: event("later")}
	unpaid := core.Job{Sink: "events", Event: event("unpaid")}
	unpaid.Tenant = "acme"
	enqueue(t, r, later, unpaid, core.Job{Sink: "other", Event: event("other")}, core.Job{Sink: "events", Event: event("now")})
	if err := r.Store().Pause(t.Context(), core.Pause{PauseTarget: core.PauseTarget{Scope: core.PauseTenant, Name: "acme"}}); err != nil {
		t.Fatal(err)
	}
	sink := outboxtest.NewSink()
	drain(t, r, to(sink))
	sink.AssertDelivered(t, outboxtest.Like(core.Event{AggregateID: "now"}))
}

func TestDrainWaitsAsLongAsADestinationAsks(t *testing.T) {
	t.Parallel()
	r := recorded(t, "event")
	enqueue(t, r, core.Job{Sink: "events", Event: event("job")})
	sink := outboxtest.NewSink().On(anything, outboxtest.Throttle("slowly", time.Millisecond), outboxtest.Throttle("slowly", time.Millisecond))
	drain(t, r, to(sink))
	if got := sink.Delivered(); len(got) != 2 {
		t.Errorf("delivered: %+v", got)
	}
}

func TestOnlyAPartOfADestinationMayAskToBeSpared(t *testing.T) {
	t.Parallel()
	r := recorded(t, "event")
	spared, other := core.Job{Sink: "events", Event: event("spared")}, core.Job{Sink: "events", Event: event("other")}
	spared.Tenant, other.Tenant = "acme", "globex"
	enqueue(t, r, spared, other, core.Job{Sink: "events", Event: event("listed")})
	acme := core.PauseTarget{Scope: core.PauseTenant, Name: "acme"}
	sink := outboxtest.NewSink().
		On(outboxtest.Like(core.Event{AggregateID: "spared"}), outboxtest.ThrottleOnly(acme, "quota", 50*time.Millisecond)).
		On(outboxtest.Like(core.Event{AggregateID: "event"}), outboxtest.ThrottleOnly(acme, "quota", 50*time.Millisecond)).
		On(outboxtest.Like(core.Event{AggregateID: "listed"}), outboxtest.RefuseFor("greylisted", 50*time.Millisecond))
	began := time.Now()
	drain(t, r, to(sink))
	if got := sink.Delivered(); len(got) != 4 || got[0].Event.AggregateID != "other" {
		t.Errorf("delivered: %+v", got)
	}
	if took := time.Since(began); took < 50*time.Millisecond {
		t.Errorf("the sink was not left alone: %v", took)
	}
}

func TestWhatFailsIsTheStores(t *testing.T) {
	t.Parallel()
	r := recorded(t, "a", "a", "b")
	sink := outboxtest.NewSink().On(outboxtest.Like(core.Event{AggregateID: "a"}), outboxtest.Reject("too large"))
	drain(t, r, relay.Config{
		Sinks:  map[string]core.Sink{"events": sink},
		Routes: []relay.Route{{Name: "kafka", Sink: "events", OnFailure: relay.Hold}},
	})
	sink.AssertDelivered(t, outboxtest.Like(core.Event{AggregateID: "b"}))
	failed, _, err := r.Store().Jobs(t.Context(), core.JobFilter{State: core.JobFailed}, "", 10)
	if err != nil || len(failed) != 1 || failed[0].Failure.Reason != "too large" {
		t.Errorf("%+v, %v", failed, err)
	}
}

func TestAttemptsRunOutWithoutWaiting(t *testing.T) {
	t.Parallel()
	r := recorded(t)
	enqueue(t, r, core.Job{Sink: "events", MaxAttempts: 3, Event: event("a")})
	sink := outboxtest.NewSink().Always(anything, outboxtest.Refuse("mailbox full"))
	drain(t, r, to(sink))
	if calls := sink.Calls(); len(calls) != 3 {
		t.Errorf("%d calls", len(calls))
	}
}

func TestDrainSaysWhatIsLeft(t *testing.T) {
	t.Parallel()
	r := recorded(t, "a")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	calls := 0
	err := outboxtest.Drain(ctx, r.Store(), to(core.SinkFunc(func(context.Context, core.Lease) error {
		if calls++; calls == 3 { // the relay has taken in the first answer
			cancel()
		}
		return core.MarkUnavailable(errors.New("no connection"))
	})))
	if err == nil || !strings.Contains(err.Error(), "1 events before route events, whose sink takes nothing: no connection") {
		t.Errorf("%v", err)
	}
	if err := outboxtest.Drain(t.Context(), r.Store(), relay.Config{}); err == nil || !strings.Contains(err.Error(), "Routes") {
		t.Errorf("without a sink: %v", err)
	}
}
