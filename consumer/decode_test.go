package consumer_test

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gooutbox/outbox/consumer"
	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/wire"
)

func lease() core.Lease {
	return core.Lease{
		Source: "/outbox/shop/outbox", Route: "kafka", Fence: 0xabc, Redriven: true,
		Event: core.Event{
			ID: "id-1", Aggregate: "order", AggregateID: "order-1", Type: "order.placed", Version: 2, AggregateVersion: 9,
			Payload: []byte(`{"n":1}`), ContentType: "application/avro", Tenant: "acme", CorrelationID: "c-7",
			OccurredAt: time.Date(2026, 3, 4, 5, 6, 7, 120_000_000, time.UTC),
			Headers:    map[string]string{"traceparent": "00-1", "B": "2"},
		},
	}
}

// carried is what a form carries of a lease, with the key beside it.
func carried(form consumer.Form, l core.Lease) consumer.Delivery {
	ev := l.Event
	d := consumer.Delivery{Form: form, Route: l.Route, Fence: l.Fence, Redriven: l.Redriven}
	d.Event = core.Event{ID: ev.ID, AggregateID: ev.AggregateID, Type: ev.Type, Payload: ev.Payload}
	contentType := ""
	for name, value := range ev.Headers {
		if strings.EqualFold(name, wire.ContentType) {
			contentType = value
			continue
		}
		if d.Headers == nil {
			d.Headers = map[string]string{}
		}
		d.Headers[name] = value
	}
	d.ContentType = contentType
	if form == consumer.Debezium {
		return d
	}
	if ev.ContentType != "" {
		d.ContentType = ev.ContentType
	}
	if d.ContentType == "" {
		d.ContentType = core.DefaultContentType
	}
	if form == consumer.Bare {
		return d
	}
	d.Source, d.Aggregate, d.Tenant, d.CorrelationID = l.Source, ev.Aggregate, ev.Tenant, ev.CorrelationID
	d.Version, d.AggregateVersion = ev.Version, ev.AggregateVersion
	if !ev.OccurredAt.IsZero() {
		d.OccurredAt = ev.OccurredAt.UTC().Truncate(time.Millisecond)
	}
	return d
}

var forms = []consumer.Form{consumer.CloudEvents, consumer.Debezium, consumer.Bare}

var prefixes = []string{wire.KafkaPrefix, wire.AMQPPrefix}

func encoded(t testing.TB, form consumer.Form, prefix string, l *core.Lease) *consumer.Raw {
	t.Helper()
	headers, err := wire.NewEncoder(form, prefix, "").Append(nil, l)
	if err != nil {
		t.Fatal(err)
	}
	return &consumer.Raw{Headers: headers, Prefixes: []string{prefix}, Key: l.Event.AggregateID, Body: l.Event.Payload}
}

func TestEachFormComesBack(t *testing.T) {
	t.Parallel()
	for _, form := range forms {
		for _, prefix := range prefixes {
			l := lease()
			raw := encoded(t, form, prefix, &l)
			for _, said := range []consumer.Form{form, ""} {
				got, err := consumer.Decode(raw, said)
				if want := carried(form, l); err != nil || !reflect.DeepEqual(got, want) {
					t.Errorf("%s %s told %q: %v\n got %+v\nwant %+v", form, prefix, said, err, got, want)
				}
			}
		}
	}
}

func TestABadMessageIsATypedError(t *testing.T) {
	t.Parallel()
	l := lease()
	good := encoded(t, consumer.CloudEvents, wire.KafkaPrefix, &l)
	with := func(name, value string) []consumer.Header {
		headers := slices.DeleteFunc(slices.Clone(good.Headers), func(h consumer.Header) bool { return h.Name == name })
		if value != "" {
			headers = append(headers, consumer.Header{Name: name, Value: value})
		}
		return headers
	}
	for field, headers := range map[string][]consumer.Header{
		"the headers":         {{Name: "x", Value: "y"}},
		"ce_id":               append(with("ce_id", "1"), consumer.Header{Name: "ce_id", Value: "2"}),
		"ce_type":             with("ce_type", ""),
		"ce_source":           with("ce_source", ""),
		"ce_specversion":      with("ce_specversion", "0.3"),
		"ce_time":             with("ce_time", "yesterday"),
		"ce_outboxversion":    with("ce_outboxversion", "two"),
		"ce_outboxaggversion": with("ce_outboxaggversion", "99999999999999999999"),
		"ce_outboxfence":      with("ce_outboxfence", "abc"),
	} {
		_, err := consumer.Decode(&consumer.Raw{Headers: headers, Prefixes: good.Prefixes}, "")
		got, ok := errors.AsType[*consumer.DecodeError](err)
		if !ok || got.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	for _, form := range append(forms, "avro") {
		if _, err := consumer.Decode(&consumer.Raw{Prefixes: good.Prefixes}, form); err == nil {
			t.Errorf("nothing was decoded as %s", form)
		}
	}
}

func TestPayloadIsTyped(t *testing.T) {
	t.Parallel()
	type order struct{ N int }
	l := lease()
	got, err := consumer.JSON[order](consumer.Delivery{Event: l.Event})
	if err != nil || got.N != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	l.Event.Payload = []byte(`{"N":"s3cr3t"}`)
	_, err = consumer.JSON[order](consumer.Delivery{Event: l.Event})
	if core.ResultOf("", err).Outcome != core.Rejected || strings.Contains(err.Error(), "s3cr3t") || !strings.Contains(err.Error(), "order.placed") {
		t.Errorf("got %v", err)
	}
	if _, ok := errors.AsType[*consumer.DecodeError](err); !ok {
		t.Errorf("got %T", err)
	}
}

func TestADeadLetterIsKnownAndItsHeadersAreNotTheEvents(t *testing.T) {
	t.Parallel()
	l := lease()
	for _, form := range forms {
		raw := encoded(t, form, wire.KafkaPrefix, &l)
		for range 2 { // also one that died twice
			raw.Headers = consumer.Undecodable(errors.New("a\nb\x00\xff")).Headers(raw.Headers, "t/0/1", "mailer", time.Now())
		}
		reasons := 0
		for _, h := range raw.Headers {
			if h.Name == consumer.DeadReason {
				reasons++
				if h.Value != "a b ?" {
					t.Errorf("reason %q", h.Value)
				}
			}
		}
		got, err := consumer.Decode(raw, "")
		if err != nil || !got.DeadLettered || !maps.Equal(got.Headers, l.Event.Headers) || reasons != 1 {
			t.Errorf("%s: %+v, %v, %d reasons", form, got, err, reasons)
		}
	}
}

// Whatever an encoder writes comes back, and whatever comes is an event or a
// DecodeError.
func FuzzDecodeUndoesEncode(f *testing.F) {
	f.Add("id", "key", "type", "agg", "tenant", "corr", "text/plain", "x-a", "1", []byte("{}"), int64(1_700_000_000_123), 1, int64(2), uint64(3), true, true)
	f.Add("1", "", "t", "", "", "", "", "Content-Type", "v", []byte(nil), int64(0), 0, int64(0), uint64(0), false, false)
	f.Add("é", "\x00", "t", "a", "b", "c", "d", "ce_id", "v", []byte{0}, int64(-1), -1, int64(-1), uint64(1<<63), false, true)
	f.Fuzz(func(t *testing.T, id, key, typ, aggregate, tenant, correlation, contentType, name, value string, payload []byte, at int64, version int, aggVersion int64, fence uint64, redriven, amqp bool) {
		l := core.Lease{Source: "/s", Route: correlation, Fence: fence, Redriven: redriven, Event: core.Event{
			ID: id, AggregateID: key, Type: typ, Aggregate: aggregate, Tenant: tenant, CorrelationID: correlation, ContentType: contentType,
			Version: version, AggregateVersion: aggVersion, OccurredAt: time.UnixMilli(at).UTC(), Headers: map[string]string{name: value}, Payload: payload,
		}}
		prefix := wire.KafkaPrefix
		if amqp {
			prefix = wire.AMQPPrefix
		}
		for _, form := range forms {
			headers, err := wire.NewEncoder(form, prefix, "").Append(nil, &l)
			if err != nil || strings.HasPrefix(name, "outboxdead") || name == wire.BareKey {
				continue
			}
			if y := l.Event.OccurredAt.Year(); y < 1 || y > 9999 {
				continue // stores refuse it
			}
			got, err := consumer.Decode(&consumer.Raw{Headers: headers, Prefixes: []string{prefix}, Key: key, Body: payload}, form)
			if want := carried(form, l); err != nil || !reflect.DeepEqual(got, want) {
				t.Fatalf("%s: %v\n got %+v\nwant %+v", form, err, got, want)
			}
		}
		_, err := consumer.Decode(&consumer.Raw{Headers: []consumer.Header{{Name: name, Value: value}, {Name: id, Value: key}, {Name: typ, Value: tenant}}, Prefixes: prefixes}, consumer.Form(contentType))
		if _, ok := errors.AsType[*consumer.DecodeError](err); err != nil && !ok {
			t.Fatalf("got a %T", err)
		}
	})
}
