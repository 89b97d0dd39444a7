package amqp

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
)

const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

func TestMessageOnTheWire(t *testing.T) {
	t.Parallel()
	url := servicetest.AMQPURL(t)
	l := lease("id-1", "order-1")
	l.Redriven = true
	l.Event.Type, l.Event.Tenant, l.Event.CorrelationID, l.Event.ContentType = "order.placed", "acme", "c-7", "application/avro"
	l.Event.OccurredAt = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	l.Event.Headers = map[string]string{"traceparent": traceparent, "Content-Type": "text/plain"}
	for form, want := range map[Form]map[string]any{
		CloudEvents: {
			"cloudEvents:specversion": "1.0", "cloudEvents:id": "id-1", "cloudEvents:source": "/outbox/test/outbox", "cloudEvents:type": "order.placed",
			"cloudEvents:subject": "order-1", "cloudEvents:partitionkey": "order-1", "cloudEvents:time": "2026-03-04T05:06:07Z",
			"cloudEvents:correlationid": "c-7", "cloudEvents:outboxtenant": "acme", "cloudEvents:outboxaggregate": "thing",
			"cloudEvents:outboxroute": "amqp", "cloudEvents:outboxfence": "0000000000000007", "cloudEvents:outboxredrive": "true",
			"traceparent": traceparent,
		},
		Bare: {
			"outboxid": "id-1", "outboxtype": "order.placed", "outboxkey": "order-1", "outboxroute": "amqp",
			"outboxfence": "0000000000000007", "outboxredrive": "true", "traceparent": traceparent,
		},
	} {
		q := newQueue(t, url, nil)
		s := newSink(t, Config{URLs: []string{url}, Exchange: q.name, RoutingKey: "{{ .Tenant }}.{{ .AggregateID }}", Form: form})
		results := s.Deliver(t.Context(), []core.Lease{l})
		outcomes(t, results, core.Delivered)
		if want := q.name + "/acme.order-1"; results[0].Receipt != want {
			t.Errorf("receipt %q, want %q", results[0].Receipt, want)
		}
		got := q.all(t)[0]
		if !maps.Equal(got.Headers, want) {
			t.Errorf("%s: headers\n%v, want\n%v", form, got.Headers, want)
		}
		if got.MessageId != "id-1" || got.Type != "order.placed" || got.CorrelationId != "c-7" || got.ContentType != "application/avro" ||
			got.DeliveryMode != amqp091.Persistent || !got.Timestamp.Equal(l.Event.OccurredAt) || got.RoutingKey != "acme.order-1" || string(got.Body) != `{"id":"id-1"}` {
			t.Errorf("%s: %+v", form, got)
		}
	}
}

func TestTransientMessagesAndAbsentFields(t *testing.T) {
	t.Parallel()
	url := servicetest.AMQPURL(t)
	q := newQueue(t, url, nil)
	s := newSink(t, Config{URLs: []string{url}, RoutingKey: q.name, Transient: true, Form: Bare})
	outcomes(t, s.Deliver(t.Context(), []core.Lease{{Event: core.Event{ID: "1", Type: "t"}}}), core.Delivered)
	got := q.all(t)[0]
	if got.DeliveryMode != amqp091.Transient || got.Exchange != "" || !got.Timestamp.IsZero() || got.CorrelationId != "" ||
		len(got.Body) != 0 || got.ContentType != core.DefaultContentType || len(got.Headers) != 2 {
		t.Errorf("%+v", got)
	}
}

// The broker itself says where the bound is: what just fits arrives.
func TestPropertiesThatDoNotFitInAFrameAreRejected(t *testing.T) {
	t.Parallel()
	url := servicetest.AMQPURL(t)
	q := newQueue(t, url, nil)
	s := newSink(t, Config{URLs: []string{url}, Exchange: q.name})
	fits := lease("fits", "a")
	fits.Event.OccurredAt = time.UnixMilli(1_700_000_000_123)
	fits.Event.Headers = map[string]string{"x-large": ""}
	m, _, err := s.message(&fits, nil)
	if err != nil {
		t.Fatal(err)
	}
	fits.Event.Headers["x-large"] = strings.Repeat("x", frameSize-8-m.propertyBytes())
	over := lease("over", "b")
	over.Event.ID, over.Event.AggregateID = "over", "b"
	over.Event.OccurredAt = fits.Event.OccurredAt
	over.Event.Headers = map[string]string{"x-large": fits.Event.Headers["x-large"] + strings.Repeat("x", 16)}
	results := s.Deliver(t.Context(), []core.Lease{fits, over, lease("other", "c")})
	outcomes(t, results, core.Delivered, core.Rejected, core.Delivered)
	if err := results[1].Err; err == nil || !strings.Contains(err.Error(), "limit 131072") {
		t.Errorf("the reason is %v", err)
	}
	if got := q.ids(t); !slices.Equal(got, []string{"fits", "other"}) {
		t.Errorf("%v arrived", got)
	}
}

func TestWhatCanNotTravelIsRejectedWithItsField(t *testing.T) {
	t.Parallel()
	s := newSink(t, Config{URLs: []string{"amqp://localhost"}, Exchange: `{{ required "Tenant" .Tenant }}`, RoutingKey: "{{ .AggregateID }}"})
	long := strings.Repeat("x", 256)
	for want, spoil := range map[string]func(*core.Event){
		"Tenant is empty, and the exchange needs it":          func(e *core.Event) { e.Tenant = "" },
		"AggregateID makes no valid routing key":              func(e *core.Event) { e.AggregateID = long },
		"the exchange: Tenant makes no valid exchange":        func(e *core.Event) { e.Tenant = "a\nb" },
		"ID is longer than a short string of AMQP":            func(e *core.Event) { e.ID = long },
		"Type is longer than a short string of AMQP":          func(e *core.Event) { e.Type = long },
		"CorrelationID is longer than a short string of AMQP": func(e *core.Event) { e.CorrelationID = long },
		"ContentType is longer than a short string of AMQP":   func(e *core.Event) { e.ContentType = long },
		`xxx"] is longer than a short string of AMQP`:         func(e *core.Event) { e.Headers = map[string]string{long: "v"} },
		"has a name that the cloudevents form uses itself":    func(e *core.Event) { e.Headers = map[string]string{"cloudEvents_id": "v"} },
		"256 bytes, limit 255":                                func(e *core.Event) { e.ID = long },
		"ID is empty: consumers drop repeats by it":           func(e *core.Event) { e.ID = "" },
		"has more than the 255 bytes that AMQP allows":        func(e *core.Event) { e.Tenant = long },
		"makes no valid routing key: it is emp":               func(e *core.Event) { e.AggregateID = "" },
	} {
		l := lease("id", "key")
		l.Event.Tenant = "acme"
		spoil(&l.Event)
		_, _, err := s.message(&l, nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
