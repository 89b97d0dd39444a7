package mongo

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares documents, as relaxed Extended JSON, with a file. What the
// server or the clock chose is replaced by its type.
func golden(t *testing.T, name string, docs ...bson.Raw) {
	t.Helper()
	var text strings.Builder
	for _, doc := range docs {
		line, err := bson.MarshalExtJSONIndent(settle(t, doc), false, false, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		text.Write(line)
		text.WriteByte('\n')
	}
	path := filepath.Join("testdata", name+".json")
	if *update {
		if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if text.String() != string(want) {
		t.Errorf("the stored layout changed; if that is meant, raise layoutVersion and run go test -update.\ngot:\n%s\nwant:\n%s", text.String(), want)
	}
}

func settle(t *testing.T, doc bson.Raw) bson.D {
	t.Helper()
	var out bson.D
	els := walk(doc)
	for els.next() {
		e := bson.E{Key: string(els.name), Value: els.value}
		switch {
		case els.value.Type == bson.TypeEmbeddedDocument:
			e.Value = settle(t, els.value.Value)
		case els.value.Type == bson.TypeTimestamp && string(els.name) != "time":
			e.Value = "<timestamp>"
		case els.value.Type == bson.TypeDateTime && els.value.Time().Year() > 2001:
			e.Value = "<date>"
		case els.value.Type == bson.TypeBinary && (string(els.name) == "token" || string(els.name) == "settled_token"):
			e.Value = "<token>"
		case string(els.name) == "term":
			e.Value = "<uuid>"
		}
		out = append(out, e)
	}
	if els.err != nil {
		t.Fatal(els.err)
	}
	return out
}

func TestTheStoredLayoutIsTheDocumentedOne(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{SerializeKeys: true})
	full := core.Event{
		ID: "0198c5a0-1111-7abc-8def-0123456789ab", Aggregate: "order", AggregateID: "o-1", Type: "order.placed", Version: 2,
		AggregateVersion: 3, Payload: []byte(`{"n":1}`), ContentType: "application/json",
		Headers: map[string]string{"b": "2", "a": "1"}, Tenant: "acme", OccurredAt: time.Unix(1, 5e6), CorrelationID: "c",
	}
	least := core.Event{ID: "least", AggregateID: "o-1", Type: "order.placed", OccurredAt: time.Unix(1, 0)}
	appendNow(t, s, full, least)
	c := acquire(t, s, "kafka", "host-1")
	full.OccurredAt = full.OccurredAt.UTC()
	bad := markAt(t, "bad", 10, 2)
	bad.raw = marshal(t, bson.D{{Key: "_id", Value: "bad"}, {Key: "x", Value: 1}})
	err := c.Park(t.Context(), []core.Parked{
		parked(markAt(t, full.ID, 10, 1), full),
		{
			Entry: core.Entry{Event: core.Event{ID: "bad"}, Mark: bad}, Sink: "events",
			Failure: core.Failure{Code: core.CodeUndecodable, Reason: "no event"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	m := markAt(t, full.ID, 10, 1)
	m.scan = &scanState{At: bson.Timestamp{T: 10}, Seq: bson.Timestamp{T: 9, I: 1}}
	if err := c.Suspect(t.Context(), markAt(t, "other", 10, 2)); err != nil {
		t.Fatal(err)
	}
	save(t, c, m)
	docs := func(coll string) []bson.Raw {
		found, err := s.db.Collection(coll).Find(t.Context(), bson.D{})
		if err != nil {
			t.Fatal(err)
		}
		var docs []bson.Raw
		if err := found.All(t.Context(), &docs); err != nil {
			t.Fatal(err)
		}
		return docs
	}
	golden(t, "log", docs("outbox")...)
	golden(t, "cursor", docs("outbox_cursors")...)
	golden(t, "jobs", docs("outbox_jobs")...)
	golden(t, "keys", docs("outbox_keys")...)
	golden(t, "meta", docs("outbox_meta")...)
}

func TestParkedJobsAreStoredAsDocumented(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{})
	c := acquire(t, s, "kafka", "host-1")
	var entries []core.Parked
	for i, id := range []string{"ready", "active", "completed", "holds", "failed", "retried", "discarded"} {
		m := markAt(t, id, 10, uint64(i))
		m.committed = true
		p := waiting(m, order(id))
		p.Entry.Event.OccurredAt = time.Unix(1, 0).UTC()
		p.Holds = id == "holds"
		entries = append(entries, p)
	}
	refused := &entries[0]
	refused.Attempts, refused.MaxAttempts, refused.Redelivered = 3, 7, true
	refused.Failure, refused.Delay = core.Failure{Code: core.CodeUnknown, Reason: "no answer"}, time.Hour
	parkAll(t, c, entries...)
	claimed := claimOpen(t, c, openJobs(t, c, "ready", "active", "completed", "holds", "failed", "retried", "discarded")[1:], 6)
	settleAll(t, s, core.Settlement{Kind: core.Complete, Receipt: "topic/0@7"}, claimed[1])
	failure := core.Failure{Code: core.CodeExhausted, Reason: "tried often enough"}
	settleAll(t, s, core.Settlement{Kind: core.Fail, Failure: failure, Holds: true}, claimed[2], claimed[5])
	settleAll(t, s, core.Settlement{Kind: core.Fail, Failure: failure}, claimed[3], claimed[4])
	if n, err := s.Retry(t.Context(), core.JobFilter{IDs: []string{"kafka/retried"}}, operator); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if n, err := s.Discard(t.Context(), core.JobFilter{IDs: []string{"kafka/discarded"}}, operator); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	golden(t, "jobs_parked", jobsOf(t, s)...)
}

func TestANewerLayoutIsRefused(t *testing.T) {
	t.Parallel()
	db := servicetest.Database(t)
	newStore(t, db, Config{})
	setLayout(t, db.Collection("outbox_meta").Name(), newStore(t, db, Config{}), layoutVersion+1)
	s, err := New(db, Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.EnsureIndexes(t.Context()); !errors.Is(err, core.ErrNewerLayout) {
		t.Errorf("EnsureIndexes: got %v", err)
	}
	if _, err := s.Acquire(t.Context(), core.AcquireRequest{Name: "kafka", Owner: "me"}); !errors.Is(err, core.ErrNewerLayout) {
		t.Errorf("Acquire: got %v", err)
	}
	err = s.InTransaction(t.Context(), func(ctx context.Context) error { return s.Append(ctx, order("a")) })
	if !errors.Is(err, core.ErrNewerLayout) {
		t.Errorf("Append: got %v", err)
	}
	if _, err := s.Clean(t.Context(), core.CleanRequest{Retention: day}); !errors.Is(err, core.ErrNewerLayout) {
		t.Errorf("Clean: got %v", err)
	}
}

func setLayout(t *testing.T, meta string, s *Store, version int) {
	t.Helper()
	res, err := s.db.Collection(meta).UpdateByID(t.Context(), layoutID, bson.D{{Key: "$set", Value: bson.D{{Key: "version", Value: version}}}})
	if err != nil || res.MatchedCount != 1 {
		t.Fatal(res, err)
	}
}

// An older program must not lower what a newer one wrote.
func TestEnsureIndexesNeverLowersTheLayout(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{})
	setLayout(t, s.meta.Name(), s, layoutVersion+1)
	if err := s.writeLayout(t.Context()); err != nil {
		t.Fatal(err)
	}
	if v, err := s.storedLayout(t.Context()); err != nil || v != layoutVersion+1 {
		t.Errorf("version %d, %v", v, err)
	}
}

func TestALogWithoutALayoutIsRead(t *testing.T) {
	t.Parallel()
	s, err := New(servicetest.Database(t), Config{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.Acquire(t.Context(), core.AcquireRequest{Name: "kafka", Owner: "me"})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}
