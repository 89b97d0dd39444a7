package mongo

import (
	"context"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
)

// codeValidation is the server's code for a document that a validator refuses.
const codeValidation = 121

// validated is a store whose collections have their validators.
func validated(t *testing.T, cfg Config) *Store {
	t.Helper()
	s := newStore(t, servicetest.Database(t), cfg)
	if err := s.EnsureValidators(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// isRefused tells whether the validator refuses a document.
func isRefused(t *testing.T, coll *mongo.Collection, doc bson.D) bool {
	t.Helper()
	_, err := coll.InsertOne(t.Context(), doc)
	if err != nil && !hasCode(err, codeValidation) {
		t.Fatal(err)
	}
	return err != nil
}

// changed is doc with one field changed, or without it where the value is
// absent.
func changed(doc bson.D, field string, value any) bson.D {
	var other bson.D
	for _, e := range doc {
		if e.Key != field {
			other = append(other, e)
		}
	}
	if value != absent {
		other = append(other, bson.E{Key: field, Value: value})
	}
	return other
}

// noField stands for a field that isn't there.
type noField struct{}

var absent any = noField{}

// TestTheValidatorRefusesWhatCouldNotBeDelivered compares it with what a cursor
// makes of the same document.
func TestTheValidatorRefusesWhatCouldNotBeDelivered(t *testing.T) {
	t.Parallel()
	s := validated(t, Config{})
	least := bson.D{{Key: "aggregate_id", Value: "order-7"}, {Key: "event_type", Value: "order.placed"}, {Key: "payload", Value: bson.D{}}}
	for field, values := range map[string][]any{
		"_id":               {absent, "e-1", "", int32(1), 1.5, true, bson.NewObjectID(), bson.NewDateTimeFromTime(time.Now()), bson.D{{Key: "a", Value: 1}}},
		"seq":               {absent, bson.Timestamp{}, nil},
		"aggregate":         {absent, "order", nil, 7, true, bson.A{}},
		"aggregate_id":      {absent, nil, "", "a", 7, int64(7), 7.5, bson.NewObjectID(), newToken(), true, bson.D{}},
		"event_type":        {absent, nil, "", "a", bson.A{"a"}, false},
		"payload":           {absent, nil, "", "text", bson.Binary{}, bson.Binary{Data: []byte{1}}, bson.A{}, bson.D{}, 7, true, time.Now()},
		"content_type":      {absent, nil, "text/plain", bson.D{}},
		"version":           {absent, nil, 0, 1, 2.0, -1, 1.5, int64(1) << 40, "1"},
		"aggregate_version": {absent, nil, int64(1) << 40, -1, 1.5, "1"},
		"headers":           {absent, nil, bson.D{}, bson.D{{Key: "a", Value: "b"}}, bson.D{{Key: "a", Value: 1}, {Key: "b", Value: nil}, {Key: "c", Value: true}}, bson.D{{Key: "a", Value: bson.A{}}}, "a", bson.A{}},
		"tenant":            {absent, nil, "acme", 7, bson.D{}},
		"occurred_at":       {absent, nil, time.Now(), bson.Timestamp{T: 1}, "2026-01-31T08:00:00Z", "2026-01-31T08:00:00.123+01:00", "yesterday", 17, bson.D{}},
		"correlation_id":    {absent, nil, "c", true},
		"key_id":            {absent, nil, "k", bson.A{}},
		"anything_else":     {absent, nil, 7, bson.A{}},
	} {
		for _, value := range values {
			doc := changed(least, field, value)
			if doc[len(doc)-1].Key != "_id" {
				doc = append(doc, bson.E{Key: "_id", Value: bson.NewObjectID()})
			}
			_, err := s.decodeEvent(t.Context(), marshal(t, doc))
			if refused := isRefused(t, s.log, doc); refused != (err != nil) {
				t.Errorf("%s: %T %v: refused %v, and a cursor says %v", field, value, value, refused, err)
			}
		}
	}
}

// Fields are those that the store is told to read.
func TestTheValidatorFollowsTheNamesOfFields(t *testing.T) {
	t.Parallel()
	s := validated(t, Config{Fields: Fields{ID: "event_id", AggregateID: "order_number", Payload: "body"}})
	doc := bson.D{{Key: "event_id", Value: "e-1"}, {Key: "order_number", Value: 7}, {Key: "event_type", Value: "t"}, {Key: "body", Value: "b"}}
	if isRefused(t, s.log, doc) {
		t.Error("an event under the configured names is refused")
	}
	for _, field := range []string{"event_id", "order_number", "body"} {
		if !isRefused(t, s.log, changed(doc, field, absent)) {
			t.Errorf("an event without %s is taken", field)
		}
	}
	appendNow(t, s, order("e-2"))
}

func TestTheValidatorRefusesJobsThatNoWorkerTakes(t *testing.T) {
	t.Parallel()
	s := validated(t, Config{})
	least := bson.D{
		{Key: "sink", Value: "mail"},
		{Key: "state", Value: "ready"},
		{Key: "rank", Value: 1},
		{Key: "event_type", Value: "mail.wanted"},
		{Key: "payload", Value: bson.D{}},
	}
	now := time.Now()
	for field, values := range map[string]struct{ right, wrong []any }{
		"_id":          {[]any{"j", 1, bson.NewObjectID(), newToken()}, []any{"", true, bson.D{{Key: "a", Value: 1}, {Key: "pauses", Value: 1}}}},
		"sink":         {nil, []any{absent, nil, "", 7}},
		"state":        {[]any{"completed", "failed", "unknown", "active"}, []any{absent, nil, "", "pending", 1}},
		"rank":         {[]any{0, 2, int64(1), 1.0}, []any{absent, nil, -1, 3, 0.5, "1"}},
		"event_type":   {[]any{strings.Repeat("t", 255)}, []any{absent, nil, "", strings.Repeat("t", 256)}},
		"payload":      {[]any{"x", bson.Binary{}}, []any{absent, 7}},
		"tenant":       {[]any{nil, "acme"}, []any{7, bson.NewObjectID()}},
		"aggregate_id": {[]any{nil, "a", 7}, []any{bson.D{}}},
		"available_at": {[]any{nil, now}, []any{"2026-01-31", 7}},
		"attempts":     {[]any{nil, 0, int64(3)}, []any{"0", -1}},
		"max_attempts": {[]any{nil, 10}, []any{"10"}},
		"lease_until":  {[]any{now}, []any{"now"}},
		"expire_at":    {[]any{now}, []any{7}},
		"priority":     {[]any{nil, "normal"}, []any{"urgent", "high", "low", 1}},
		"headers":      {[]any{nil, bson.D{{Key: "a", Value: "b"}}}, []any{"a", bson.D{{Key: "ce_id", Value: "x"}}, bson.D{{Key: "CE-id", Value: "x"}}}},
	} {
		for _, value := range values.right {
			if doc := changed(least, field, value); isRefused(t, s.jobs, doc) {
				t.Errorf("%s: %T %v is refused", field, value, value)
			}
		}
		for _, value := range values.wrong {
			if doc := changed(least, field, value); !isRefused(t, s.jobs, doc) {
				t.Errorf("%s: %T %v is taken", field, value, value)
			}
		}
	}
}

// TestTheValidatorsTakeWhateverTheStoreWrites goes through a job's whole life.
func TestTheValidatorsTakeWhateverTheStoreWrites(t *testing.T) {
	t.Parallel()
	s := validated(t, Config{Retain: RetainNone})
	full := core.Event{
		ID: "full", Aggregate: "order", AggregateID: "o", Type: "t", Version: 2, AggregateVersion: 1 << 40, Payload: []byte{1},
		ContentType: "c", Headers: map[string]string{"a": "b"}, Tenant: "acme", OccurredAt: time.Now(), CorrelationID: "x",
	}
	appendNow(t, s, full, core.Event{AggregateID: "k", Type: "t"})
	jobs := []core.Job{
		{Event: full, Sink: "mail", Priority: core.High, NotBefore: time.Now(), DedupKey: "d", MaxAttempts: 3},
		{Event: core.Event{Type: "t"}, Sink: "mail"},
		mail("a"), mail("b"), mail("c"), mail("d"), mail("e"),
	}
	enqueue(t, s, jobs...)
	failure := core.Failure{Code: core.CodeRejected, Reason: "r"}
	claimed := claimAs(t, s, core.ClaimRequest{Max: len(jobs), Owner: "me"})
	for i, kind := range []core.SettleKind{core.Complete, core.Retry, core.Fail, core.EndUnknown, core.GiveBack} {
		settleAll(t, s, core.Settlement{Kind: kind, Receipt: "r", Failure: failure}, claimed[i])
	}
	endLease(t, s, time.Hour, claimed[5:]...)
	if _, err := s.TakeBack(t.Context(), core.TakeBackRequest{MaxRedeliveries: 1}); err != nil {
		t.Fatal(err)
	}
	c := acquire(t, s, "kafka", "host-1")
	undecodable := markAt(t, "u", 10, 3)
	undecodable.raw = marshal(t, bson.D{{Key: "_id", Value: 1}})
	parks := []core.Parked{
		parked(markAt(t, "a", 10, 1), order("a")),
		parked(markAt(t, bson.D{{Key: "a", Value: 1}}, 10, 2), core.Event{Type: "t"}),
		parked(undecodable, core.Event{}),
	}
	if err := c.Park(t.Context(), parks); err != nil {
		t.Fatal(err)
	}
	if _, err := c.park(t.Context(), []core.Parked{parked(markAt(t, "b", 10, 4), order("b"))}, true); err != nil {
		t.Fatal(err)
	}
	for _, pause := range []core.Pause{{For: time.Hour}, {By: "jo"}} {
		pause.PauseTarget = core.PauseTarget{Scope: core.PauseSink, Name: "mail"}
		if err := s.Pause(t.Context(), pause); err != nil {
			t.Fatal(err)
		}
	}
	for _, do := range []func(context.Context, core.JobFilter, core.Act) (int64, error){s.Retry, s.Discard} {
		if n, err := do(t.Context(), core.JobFilter{All: true}, operator); err != nil || n == 0 {
			t.Fatal(n, err)
		}
	}
	for coll, schema := range map[*mongo.Collection]bson.D{s.log: s.eventSchema(), s.jobs: jobSchema()} {
		var odd []bson.D
		cur, err := coll.Find(t.Context(), bson.D{{Key: "$nor", Value: bson.A{bson.D{{Key: "$jsonSchema", Value: schema}}}}})
		if err == nil {
			err = cur.All(t.Context(), &odd)
		}
		if err != nil || len(odd) > 0 {
			t.Errorf("%s: %v, %v", coll.Name(), odd, err)
		}
	}
}

// What is there already goes on: only its producers are to be corrected.
func TestAValidatorLeavesWhatIsStored(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{})
	wrong := bson.D{{Key: "_id", Value: "old"}, {Key: "published_at", Value: nil}}
	if isRefused(t, s.log, wrong) {
		t.Fatal("a validator was set without being asked for")
	}
	for range 2 {
		if err := s.EnsureValidators(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	_, err := s.log.UpdateByID(t.Context(), "old", bson.D{{Key: "$set", Value: bson.D{{Key: "published_at", Value: time.Now()}}}})
	if err != nil {
		t.Errorf("marking an old document: %v", err)
	}
	if !isRefused(t, s.log, changed(wrong, "_id", "new")) {
		t.Error("a new document like it is taken")
	}
}
