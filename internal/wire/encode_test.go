package wire

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/gooutbox/outbox/core"
)

func full() core.Lease {
	return core.Lease{
		Source: "/outbox/shop/outbox", Route: "kafka", Fence: 0xabc, Redriven: true,
		Event: core.Event{
			ID: "id-1", Aggregate: "order", AggregateID: "order-1", Type: "order.placed", Version: 2, AggregateVersion: 9,
			Payload: []byte("{}"), ContentType: "application/avro", Tenant: "acme", CorrelationID: "c-7",
			OccurredAt: time.Date(2026, 3, 4, 5, 6, 7, 120_000_000, time.UTC),
			Headers:    map[string]string{"traceparent": "00-…-01", "B": "2", "a": "1"},
		},
	}
}

func TestHeadersOfEachForm(t *testing.T) {
	t.Parallel()
	own := []Header{{"B", "2"}, {"a", "1"}, {"traceparent", "00-…-01"}}
	for form, want := range map[Form][]Header{
		CloudEvents: {
			{"ce_specversion", "1.0"},
			{"ce_id", "id-1"},
			{"ce_source", "/outbox/shop/outbox"},
			{"ce_type", "order.placed"},
			{"ce_subject", "order-1"},
			{"ce_time", "2026-03-04T05:06:07.12Z"},
			{"ce_partitionkey", "order-1"},
			{"ce_correlationid", "c-7"},
			{"ce_outboxtenant", "acme"},
			{"ce_outboxaggregate", "order"},
			{"ce_outboxversion", "2"},
			{"ce_outboxaggversion", "9"},
			{"ce_outboxroute", "kafka"},
			{"ce_outboxfence", "0000000000000abc"},
			{"ce_outboxredrive", "true"},
			{"content-type", "application/avro"},
		},
		Debezium: {
			{"id", "id-1"},
			{"eventType", "order.placed"},
			{"outboxroute", "kafka"},
			{"outboxfence", "0000000000000abc"},
			{"outboxredrive", "true"},
		},
		Bare: {
			{"outboxid", "id-1"},
			{"outboxtype", "order.placed"},
			{"outboxroute", "kafka"},
			{"outboxfence", "0000000000000abc"},
			{"outboxredrive", "true"},
			{"content-type", "application/avro"},
		},
	} {
		got, err := NewEncoder(form, "ce_", "").Append(nil, new(full()))
		if want = append(want, own...); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v\n%q, want\n%q", form, err, got, want)
		}
	}
}

func TestHeadersOfAMQP(t *testing.T) {
	t.Parallel()
	l := core.Lease{Source: "/s", Event: core.Event{ID: "1", Type: "t", AggregateID: "k"}}
	for form, want := range map[Form][]Header{
		CloudEvents: {
			{"cloudEvents:specversion", "1.0"},
			{"cloudEvents:id", "1"},
			{"cloudEvents:source", "/s"},
			{"cloudEvents:type", "t"},
			{"cloudEvents:subject", "k"},
			{"cloudEvents:partitionkey", "k"},
			{"content-type", core.DefaultContentType},
		},
		Bare: {{"outboxid", "1"}, {"outboxtype", "t"}, {"outboxkey", "k"}, {"content-type", core.DefaultContentType}},
	} {
		e := NewEncoder(form, AMQPPrefix, "")
		if got, err := e.Append(nil, &l); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v\n%q, want\n%q", form, err, got, want)
		}
		for _, name := range map[Form][]string{CloudEvents: {"cloudevents:id", "CloudEvents_id", "ce_id"}, Bare: {"OutboxKey"}}[form] {
			forged := l
			forged.Event.Headers = map[string]string{name: "forged"}
			if _, err := e.Append(nil, &forged); err == nil {
				t.Errorf("%s: header %s passed", form, name)
			}
		}
	}
}

func TestAbsentFieldsHaveNoHeader(t *testing.T) {
	t.Parallel()
	l := core.Lease{Source: "/s", Event: core.Event{ID: "1", Type: "t"}}
	got, err := NewEncoder("", "ce_", "/other").Append(nil, &l)
	want := []Header{{"ce_specversion", "1.0"}, {"ce_id", "1"}, {"ce_source", "/other"}, {"ce_type", "t"}, {"content-type", core.DefaultContentType}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v\n%q, want\n%q", err, got, want)
	}
}

func TestContentTypeAmongTheHeadersCounts(t *testing.T) {
	t.Parallel()
	for field, want := range map[string]string{"": "text/csv", "text/xml": "text/xml"} {
		l := core.Lease{Source: "/s", Event: core.Event{ID: "1", Type: "t", ContentType: field, Headers: map[string]string{"Content-Type": "text/csv"}}}
		got, err := NewEncoder(Bare, "", "").Append(nil, &l)
		if err != nil || !slices.Contains(got, Header{"content-type", want}) || len(got) != 3 {
			t.Errorf("field %q: %q, %v, want %s once", field, got, err, want)
		}
	}
}

func TestHeadersOfTheFormCantBeForged(t *testing.T) {
	t.Parallel()
	for form, names := range map[Form][]string{
		CloudEvents: {"ce_id", "CE_Source", "ce-type", "ce_anything"},
		Debezium:    {"id", "ID", "eventtype", "outboxfence"},
		Bare:        {"outboxid", "OutboxType", "outboxroute", "outboxredrive"},
	} {
		for _, name := range names {
			l := full()
			l.Event.Headers = map[string]string{name: "forged"}
			before := []Header{{"kept", "1"}}
			got, err := NewEncoder(form, "ce_", "").Append(before, &l)
			field, ok := errors.AsType[*core.FieldError](err)
			if !ok || !strings.Contains(field.Field, name) || strings.Contains(err.Error(), "forged") {
				t.Errorf("%s: header %s: %v, want an error that names it", form, name, err)
			}
			if !slices.Equal(got, before) {
				t.Errorf("%s: after the error %q came back", form, got)
			}
		}
	}
}

func TestEventWithoutWhatTheFormNeeds(t *testing.T) {
	t.Parallel()
	for field, l := range map[string]core.Lease{
		"ID":     {Source: "/s", Event: core.Event{Type: "t"}},
		"Type":   {Source: "/s", Event: core.Event{ID: "1"}},
		"Source": {Event: core.Event{ID: "1", Type: "t"}},
	} {
		_, err := NewEncoder(CloudEvents, "ce_", "").Append(nil, &l)
		if got, ok := errors.AsType[*core.FieldError](err); !ok || got.Field != field {
			t.Errorf("without %s: %v", field, err)
		}
	}
}

func TestFenceFollowsTheLease(t *testing.T) {
	t.Parallel()
	e := NewEncoder(Bare, "", "")
	for _, fence := range []uint64{1, 1, 2, 0, 1<<64 - 1} {
		l := core.Lease{Fence: fence, Event: core.Event{ID: "1", Type: "t"}}
		got, _ := e.Append(nil, &l)
		want := map[uint64]string{1: "0000000000000001", 2: "0000000000000002", 1<<64 - 1: "ffffffffffffffff"}[fence]
		at := slices.IndexFunc(got, func(h Header) bool { return h.Name == Fence })
		if (at >= 0) != (fence != 0) || at >= 0 && got[at].Value != want {
			t.Errorf("fence %d: %q", fence, got)
		}
	}
}

func TestFormsByName(t *testing.T) {
	t.Parallel()
	for form, ok := range map[Form]bool{"": true, "cloudevents": true, "debezium": true, "bare": true, "Bare": false, "avro": false} {
		if err := form.Validate(); (err == nil) != ok {
			t.Errorf("form %q: %v", form, err)
		}
	}
}

// Whatever an event holds, its headers tell it again, each name once.
func FuzzHeadersTellTheEvent(f *testing.F) {
	f.Add("id", "key", "type", "agg", "tenant", "corr", "text/plain", "x-a", "1", int64(1_700_000_000_123), 1, int64(2), uint64(3))
	f.Add("", "", "", "", "", "", "", "", "", int64(0), 0, int64(0), uint64(0))
	f.Add("é", "\x00", "t", "a", "b", "c", "d", "Content-Type", "v", int64(-1), -1, int64(-1), uint64(1<<63))
	f.Fuzz(func(t *testing.T, id, key, typ, aggregate, tenant, correlation, contentType, name, value string, at int64, version int, aggVersion int64, fence uint64) {
		l := core.Lease{Source: "/s", Route: "r", Fence: fence, Event: core.Event{
			ID: id, AggregateID: key, Type: typ, Aggregate: aggregate, Tenant: tenant, CorrelationID: correlation, ContentType: contentType,
			Version: version, AggregateVersion: aggVersion, OccurredAt: time.UnixMilli(at), Headers: map[string]string{name: value},
		}}
		for _, form := range []Form{CloudEvents, Debezium, Bare} {
			headers, err := NewEncoder(form, KafkaPrefix, "").Append(nil, &l)
			if err != nil {
				if _, ok := errors.AsType[*core.FieldError](err); !ok || len(headers) != 0 {
					t.Fatalf("%s: %v, %q", form, err, headers)
				}
				continue
			}
			got := map[string]string{}
			for _, h := range headers {
				lower := strings.ToLower(h.Name)
				if _, twice := got[lower]; twice {
					t.Fatalf("%s: %q comes twice", form, h.Name)
				}
				got[lower] = h.Value
			}
			if form == CloudEvents {
				checkAttributes(t, &l, got)
			}
			if own, ok := got[strings.ToLower(name)]; !strings.EqualFold(name, ContentType) && (!ok || own != value) {
				t.Fatalf("%s: the event's header %q became %q", form, name, own)
			}
		}
	})
}

func checkAttributes(t *testing.T, l *core.Lease, got map[string]string) {
	t.Helper()
	for attribute, want := range map[string]string{
		ID: l.Event.ID, Type: l.Event.Type, Subject: l.Event.AggregateID, PartitionKey: l.Event.AggregateID,
		Aggregate: l.Event.Aggregate, Tenant: l.Event.Tenant, CorrelationID: l.Event.CorrelationID, Route: l.Route,
	} {
		value, ok := got[KafkaPrefix+attribute]
		if ok != (want != "") || value != want {
			t.Fatalf("attribute %s is %q, want %q", attribute, value, want)
		}
	}
	for name := range got {
		attribute, ok := strings.CutPrefix(name, KafkaPrefix)
		if ok && (len(attribute) > 20 || strings.ContainsFunc(attribute, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') })) {
			t.Fatalf("CloudEvents allows no attribute %q", attribute)
		}
	}
	if text := got[KafkaPrefix+Time]; utf8.ValidString(text) && text != "" {
		if at, err := time.Parse(time.RFC3339, text); err == nil && !at.Equal(l.Event.OccurredAt) {
			t.Fatalf("time %s, want %v", text, l.Event.OccurredAt)
		}
	}
}

func BenchmarkAppend(b *testing.B) {
	e, l := NewEncoder(CloudEvents, KafkaPrefix, ""), full()
	var dst []Header
	b.ReportAllocs()
	for b.Loop() {
		dst, _ = e.Append(dst[:0], &l)
	}
}
