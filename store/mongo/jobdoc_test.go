package mongo

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
)

func TestStoredJobsAreTheDocumentedOnes(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{IDNamespace: "shop"})
	full := core.Job{
		Event: core.Event{
			ID: "event-1", Aggregate: "order", AggregateID: "o-1", Type: "mail.wanted", Version: 2, AggregateVersion: 3,
			Payload: []byte(`{"n":1}`), ContentType: "application/json", Headers: map[string]string{"b": "2", "a": "1"},
			Tenant: "acme", OccurredAt: time.Unix(1, 5e6), CorrelationID: "c",
		},
		Sink: "mail", Priority: core.High, NotBefore: time.Unix(10, 1), DedupKey: "full", MaxAttempts: 3,
	}
	least := core.Job{Event: core.Event{Type: "mail.wanted", OccurredAt: time.Unix(1, 0)}, Sink: "mail", DedupKey: "least"}
	enqueue(t, s, full, least)
	ready := jobsOf(t, s)
	slices.SortFunc(ready, func(a, b bson.Raw) int { return len(b) - len(a) })
	golden(t, "jobs_ready", ready...)

	claimed := claimAs(t, s, core.ClaimRequest{Max: 2, Owner: "host-1"})
	golden(t, "jobs_active", jobOf(t, s, claimed[0]))
	endLease(t, s, time.Minute, claimed[1])
	if _, err := s.TakeBack(t.Context(), core.TakeBackRequest{}); err != nil {
		t.Fatal(err)
	}
	golden(t, "jobs_taken_back", jobOf(t, s, claimed[1]))
	settleAll(t, s, core.Settlement{Kind: core.Complete, Receipt: "ses 17"}, claimed[0])
	golden(t, "jobs_completed", jobOf(t, s, claimed[0]))
	settleAll(t, s, core.Settlement{Kind: core.Fail, Failure: core.Failure{Code: core.CodeRejected, Reason: "no such user"}}, claim(t, s, 2)...)
	golden(t, "jobs_failed", jobOf(t, s, claimed[1]))
	for _, p := range []core.Pause{
		{PauseTarget: core.PauseTarget{Scope: core.PauseSink, Name: "mail"}, For: time.Minute, Reason: "throttled"},
		{PauseTarget: core.PauseTarget{Scope: core.PauseTenant, Name: "acme"}, Reason: "unpaid", By: "jo"},
	} {
		if err := s.Pause(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	golden(t, "pauses", slices.DeleteFunc(jobsOf(t, s), func(doc bson.Raw) bool { return !doc.Lookup("state").IsZero() })...)
}

func TestAJobIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{})
	want := core.Job{
		Event: core.Event{
			ID: "event-1", Aggregate: "order", AggregateID: "o-1", Type: "mail.wanted", Version: 2, AggregateVersion: 3,
			Payload: []byte{0, 1, 2}, ContentType: "text/plain", Headers: map[string]string{"b": "2", "a": "1"},
			Tenant: "acme", OccurredAt: time.Unix(1, 5e6).UTC(), CorrelationID: "c",
		},
		Sink: "mail", Priority: core.Low, MaxAttempts: 3,
	}
	enqueue(t, s, want)
	for n := range 2 { // claimed alone, and as one of several
		c := claimAs(t, s, core.ClaimRequest{Max: n + 1})[0]
		e := c.Lease.Event
		if e.ID != want.ID || e.Aggregate != want.Aggregate || e.AggregateID != want.AggregateID || e.Type != want.Type ||
			e.Version != want.Version || e.AggregateVersion != want.AggregateVersion || !slices.Equal(e.Payload, want.Payload) ||
			e.ContentType != want.ContentType || len(e.Headers) != 2 || e.Headers["a"] != "1" || e.Tenant != want.Tenant ||
			!e.OccurredAt.Equal(want.OccurredAt) || e.CorrelationID != want.CorrelationID {
			t.Errorf("read %+v", e)
		}
		if c.Sink != "mail" || c.Priority != core.Low || c.MaxAttempts != 3 || c.Lease.Source != s.Source() || c.ID == e.ID {
			t.Errorf("read %+v", c)
		}
		settleAll(t, s, core.Settlement{Kind: core.GiveBack}, c)
	}
}

func TestAJobMayHaveNoContent(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{})
	enqueue(t, s, core.Job{Event: core.Event{Type: "ping"}, Sink: "mail"}, core.Job{Event: core.Event{Type: "ping"}, Sink: "mail", DedupKey: "k"})
	for _, c := range claim(t, s, 2) {
		if c.Err != nil || len(c.Lease.Event.Payload) != 0 {
			t.Errorf("claimed %+v", c)
		}
	}
}

// What a program's clock says must not be seen as a job's age.
func TestTheTimeOfAnEnqueueIsTheServers(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{})
	for _, wrong := range []time.Duration{-time.Hour, time.Hour} {
		s.queue.now = func() time.Time { return time.Now().Add(wrong) }
		enqueue(t, s, mail("a"), keyedMail(wrong.String(), "b"))
		s.queue.now = time.Now
		for _, c := range claim(t, s, 2) {
			if off := time.Since(c.EnqueuedAt); off < -2*time.Second || off > time.Minute {
				t.Errorf("a clock that is off by %s makes it %s old", wrong, off)
			}
		}
	}
}

func TestIDsAreNamedAndFound(t *testing.T) {
	t.Parallel()
	s := unconnected(t, Config{})
	oid := bson.NewObjectID()
	for _, id := range []any{
		"text", "a/b", oid, newToken(), int64(7),
		jobID{Log: "outbox", Cursor: "kafka", Event: valueOf(t, "e-1")},
		jobID{Log: "outbox", Cursor: "a/b", Event: valueOf(t, "c/d")},
		jobID{Log: "outbox", Cursor: "kafka", Event: valueOf(t, oid)},
		jobID{Log: "outbox", Cursor: "kafka", Event: valueOf(t, newToken())},
	} {
		value := valueOf(t, id)
		found := slices.ContainsFunc(s.idsNamed(jobName(value)), func(candidate any) bool { return valueOf(t, candidate).Equal(value) })
		if !found {
			t.Errorf("%v is not among those named %q", id, jobName(value))
		}
	}
}

// A setting that is not what it should be must not stop a queue.
func TestUnreadableSettingsHaveTheirDefaults(t *testing.T) {
	t.Parallel()
	s := unconnected(t, Config{})
	base := bson.D{{Key: "_id", Value: "a"}, {Key: "sink", Value: "mail"}, {Key: "event_type", Value: "t"}, {Key: "payload", Value: "x"}}
	for _, field := range []string{"rank", "attempts", "max_attempts", "redeliveries", "redelivered", "seq", "available_at", "failure", "token", "owner"} {
		for _, value := range []any{"text", -1, 1.5, nil, bson.A{1}, bson.D{{Key: "a", Value: 1}}, time.Unix(1, 0), true} {
			doc := marshal(t, append(slices.Clone(base), bson.E{Key: field, Value: value}))
			if j := s.decodeJob(t.Context(), doc); j.err != nil || j.maxAttempts <= 0 || j.attempts < 0 || j.rank < 0 {
				t.Errorf("%s = %v: %+v", field, value, j)
			}
		}
	}
}

func TestWhatIsNoJobIsRejectedForGood(t *testing.T) {
	t.Parallel()
	s := unconnected(t, Config{})
	for name, doc := range map[string]bson.D{
		"no type":     {{Key: "_id", Value: 1}, {Key: "sink", Value: "mail"}, {Key: "payload", Value: "x"}},
		"no payload":  {{Key: "_id", Value: 1}, {Key: "sink", Value: "mail"}, {Key: "event_type", Value: "t"}},
		"a document":  {{Key: "_id", Value: 1}, {Key: "event_type", Value: "t"}, {Key: "document", Value: bson.D{}}},
		"wrong codec": {{Key: "_id", Value: 1}, {Key: "event_type", Value: "t"}, {Key: "payload", Value: "x"}, {Key: "codec", Value: "gone"}},
	} {
		j := s.decodeJob(t.Context(), marshal(t, doc))
		if core.ResultOf("", j.err).Outcome != core.Rejected {
			t.Errorf("%s: %v", name, j.err)
		}
	}
	s.cfg.Codec = reverse{openErr: errors.New("the key service is down")}
	sealed := marshal(t, bson.D{
		{Key: "_id", Value: "a"},
		{Key: "event_type", Value: "t"},
		{Key: "payload", Value: "x"},
		{Key: "codec", Value: "reverse"},
		{Key: "key_id", Value: "key of a"},
	})
	if j := s.decodeJob(t.Context(), sealed); j.err == nil || core.ResultOf("", j.err).Outcome == core.Rejected {
		t.Errorf("what a later try may open: %v", j.err)
	}
}

func FuzzDecodeJob(f *testing.F) {
	s := unconnected(f, Config{})
	j := mail("a")
	j.Headers = map[string]string{"a": "b"}
	id := dedupID("", "", "")
	doc, err := s.jobDocument(f.Context(), &j, id, s.hashJob(&j), newToken(), time.Now())
	if err != nil {
		f.Fatal(err)
	}
	body := func(doc bson.Raw) []byte { return doc[4 : len(doc)-1] }
	f.Add(body(doc))
	f.Add(body(marshal(f, bson.D{
		{Key: "_id", Value: jobID{Log: "outbox", Cursor: "kafka", Event: bson.RawValue{Type: bson.TypeNull}}},
		{Key: "rank", Value: 2.5},
		{Key: "seq", Value: bson.Timestamp{T: 1}},
		{Key: "failure", Value: bson.D{{Key: "at", Value: "x"}}},
		{Key: "payload", Value: bson.D{{Key: "a", Value: bson.A{1.5}}}},
		{Key: "event_type", Value: "t"},
		{Key: "enqueued_at", Value: time.Unix(0, 0)},
	})))
	f.Fuzz(func(t *testing.T, data []byte) {
		raw := bson.Raw(append(append(binary.LittleEndian.AppendUint32(nil, uint32(len(data)+5)), data...), 0))
		j := s.decodeJob(t.Context(), raw)
		if j.err == nil && (j.event.Type == "" || j.event.ID == "") {
			t.Fatalf("a job without type or id: %+v", j)
		}
		if j.maxAttempts <= 0 || j.attempts < 0 || j.redeliveries < 0 || j.rank < 0 || j.availableAt.Before(j.enqueuedAt) {
			t.Fatalf("settings that make no sense: %+v", j)
		}
		_ = j.info()
		_ = headOf(raw, 0)
	})
}

func TestAJobIsFoundByItsNameWhateverTypeItsEventsIDHas(t *testing.T) {
	t.Parallel()
	s := &Store{cfg: Config{Collection: "outbox"}}
	price, err := bson.ParseDecimal128("1.50")
	if err != nil {
		t.Fatal(err)
	}
	for _, event := range []any{
		"e-1", `{"a": 1}`, "7", int64(7), bson.NewObjectID(), uuidValue(uuid.New()),
		bson.Binary{Data: []byte("x")},
		7.5, true, price,
		bson.DateTime(1),
		bson.Timestamp{T: 1, I: 2},
		bson.D{{Key: "a", Value: int32(1)}, {Key: "b", Value: "x"}},
		bson.MinKey{},
	} {
		_, id, err := bson.MarshalValue(bson.D{{Key: "log", Value: "outbox"}, {Key: "cursor", Value: "k/1"}, {Key: "event", Value: event}})
		if err != nil {
			t.Fatal(err)
		}
		name := jobName(bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: id})
		found := slices.ContainsFunc(s.idsNamed(name), func(v any) bool {
			_, got, err := bson.MarshalValue(v)
			return err == nil && bytes.Equal(got, id)
		})
		if !found {
			t.Errorf("%T %v: %s is found as none of %v", event, event, name, s.idsNamed(name))
		}
	}
}
