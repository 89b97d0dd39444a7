package storetest

import (
	"bytes"
	"maps"
	"math"
	"time"

	"github.com/gooutbox/outbox/core"
)

// everyByte is a payload that is no text.
func everyByte() []byte {
	b := make([]byte, 256)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}

// full is an event with every field set.
func full() core.Event {
	return core.Event{
		ID: "id-1", Aggregate: "order", AggregateID: "order-1", Type: "order.placed", Version: 3,
		AggregateVersion: 41, Payload: []byte(` {"total": 1.0 , "b":"a"}` + "\n"), ContentType: "application/json",
		Headers: map[string]string{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "X-Mixed-Case": ""},
		Tenant:  "tenant-1", OccurredAt: time.Date(2024, 2, 29, 23, 59, 59, 999e6, time.UTC), CorrelationID: "corr-1",
	}
}

func roundTripRules() []rule {
	same := func(name string, change func(*core.Event)) rule {
		return rule{name: name, check: func(k *kit) {
			c := k.cursor()
			want := full()
			change(&want)
			k.commit(want)
			got := k.read(c, 1)[0]
			if got.Err != nil {
				k.Fatalf("the entry has the error %v", got.Err)
			}
			k.wantSame(got.Event, want)
		}}
	}
	return []rule{
		same("EveryField", func(*core.Event) {}),
		same("LeastEvent", func(e *core.Event) {
			*e = core.Event{ID: "id", AggregateID: "k", Type: "t", OccurredAt: e.OccurredAt}
		}),
		same("EmptyPayload", func(e *core.Event) { e.Payload = []byte{} }),
		same("BinaryPayload", func(e *core.Event) {
			e.Payload, e.ContentType = everyByte(), "application/octet-stream"
		}),
		same("BinaryPayloadThatClaimsToBeText", func(e *core.Event) {
			e.Payload, e.ContentType = everyByte(), "application/json"
		}),
		same("NonASCIIText", func(e *core.Event) {
			e.ID, e.Aggregate, e.AggregateID, e.Type = "ид-1", "Auftrag-ä", "ключ/🔑", "注文.作成"
			e.Tenant, e.CorrelationID = "Ünïted", "e\u0301" // not composed, and stays so
			e.Headers = map[string]string{"x-name": "Zoë 🚀"}
		}),
		same("HeaderNamesWithDotsAndDollars", func(e *core.Event) {
			e.Headers = map[string]string{"a.b.c": "1", "$set": "2", "$a.b": "3", "_id": "4", "x|y": "5"}
		}),
		same("IDLikeAnObjectID", func(e *core.Event) { e.ID = "65f0c0ffee65f0c0ffee65f0" }),
		same("IDLikeAUUID", func(e *core.Event) { e.ID = "018F4E7C-0000-7000-8000-00000000ABCD" }),
		same("LargestNumbers", func(e *core.Event) {
			e.Version, e.AggregateVersion = math.MaxInt32, math.MaxInt64
		}),
		same("TimeBefore1970", func(e *core.Event) {
			e.OccurredAt = time.Date(1901, 12, 13, 20, 45, 51, 999e6, time.UTC)
		}),
		same("FirstTime", func(e *core.Event) { e.OccurredAt = time.Date(1, 1, 1, 0, 0, 0, 1e6, time.UTC) }),
		same("LastTime", func(e *core.Event) {
			e.OccurredAt = time.Date(9999, 12, 31, 23, 59, 59, 999e6, time.UTC)
		}),
		{name: "TimesAreCutToMilliseconds", check: func(k *kit) {
			c := k.cursor()
			e := full()
			e.OccurredAt = time.Date(2024, 3, 1, 1, 2, 3, 456_999_999, time.FixedZone("east", 5*3600))
			k.commit(e)
			e.OccurredAt = time.Date(2024, 2, 29, 20, 2, 3, 456e6, time.UTC)
			k.wantSame(k.read(c, 1)[0].Event, e)
		}},
		{name: "MissingTimeIsSet", check: func(k *kit) {
			c := k.cursor()
			e := event("a")
			before := time.Now()
			k.commit(e)
			got := k.read(c, 1)[0].Event.OccurredAt
			if got.Before(before.Add(-time.Minute)) || got.After(time.Now().Add(time.Minute)) {
				k.Errorf("occurred at %v, want about %v", got, before)
			}
			if !got.Equal(got.Truncate(time.Millisecond)) {
				k.Errorf("occurred at %v, want whole milliseconds", got)
			}
		}},
		{name: "CallersMemoryIsNotKept", check: func(k *kit) {
			c := k.cursor()
			e := full()
			k.commit(e)
			e.Payload[0], e.Headers["traceparent"] = 'X', "changed"
			k.wantSame(k.read(c, 1)[0].Event, full())
		}},
		{name: "CommitTimeIsAboutNow", check: func(k *kit) {
			c := k.cursor()
			k.append("a")
			at := k.read(c, 1)[0].CommittedAt
			if at.IsZero() {
				k.Skip("the store doesn't know when an event was committed")
			}
			if d := time.Since(at).Abs(); d > time.Minute {
				k.Errorf("committed %v from now, want about now", d)
			}
		}},
	}
}

func (k *kit) wantSame(got, want core.Event) {
	k.Helper()
	if !got.OccurredAt.Equal(want.OccurredAt) {
		k.Errorf("OccurredAt: %v, want %v", got.OccurredAt, want.OccurredAt)
	}
	if !bytes.Equal(got.Payload, want.Payload) {
		k.Errorf("Payload: %q, want %q", got.Payload, want.Payload)
	}
	if !maps.Equal(got.Headers, want.Headers) {
		k.Errorf("Headers: %q, want %q", got.Headers, want.Headers)
	}
	texts := []struct{ field, got, want string }{
		{"ID", got.ID, want.ID},
		{"Aggregate", got.Aggregate, want.Aggregate},
		{"AggregateID", got.AggregateID, want.AggregateID},
		{"Type", got.Type, want.Type},
		{"ContentType", got.ContentType, want.ContentType},
		{"Tenant", got.Tenant, want.Tenant},
		{"CorrelationID", got.CorrelationID, want.CorrelationID},
	}
	for _, f := range texts {
		if f.got != f.want {
			k.Errorf("%s: %q, want %q", f.field, f.got, f.want)
		}
	}
	if got.Version != want.Version || got.AggregateVersion != want.AggregateVersion {
		k.Errorf("Version, AggregateVersion: %d, %d, want %d, %d",
			got.Version, got.AggregateVersion, want.Version, want.AggregateVersion)
	}
}
