package mongo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.opentelemetry.io/otel/trace"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
)

func keyedMail(key, payload string) core.Job {
	j := mail(payload)
	j.DedupKey = key
	return j
}

func TestEnqueueFollowsTheRulesOfTransactions(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{})
	if _, err := s.Enqueue(t.Context(), mail("a")); !errors.Is(err, core.ErrNoTransaction) {
		t.Errorf("outside a transaction: %v", err)
	}
	abort := errors.New("abort")
	err := s.InTransaction(t.Context(), func(ctx context.Context) error {
		if _, err := s.Enqueue(ctx, core.Job{}); !errors.Is(err, core.ErrInvalidJob) {
			t.Errorf("an empty job: %v", err)
		}
		receipts, err := s.Enqueue(ctx, mail("a"), keyedMail("k", "b"))
		if err != nil || len(receipts) != 2 {
			t.Errorf("got %v, %v", receipts, err)
		}
		return abort
	})
	if !errors.Is(err, abort) || len(jobsOf(t, s)) != 0 {
		t.Errorf("%v, and %d jobs of an aborted transaction", err, len(jobsOf(t, s)))
	}
	other, err := New(servicetest.Mongo(t).Database(s.db.Name()), Config{})
	if err != nil {
		t.Fatal(err)
	}
	err = s.InTransaction(t.Context(), func(ctx context.Context) error {
		_, err := other.Enqueue(ctx, mail("a"))
		return err
	})
	if !errors.Is(err, ErrOtherClient) {
		t.Errorf("a transaction of another client: %v", err)
	}
}

func TestEnqueueTakesOneRoundTripAForm(t *testing.T) {
	t.Parallel()
	var sent commands
	s := newStore(t, servicetest.Database(t, sent.options()), Config{})
	enqueue(t, s, mail("warm"))
	for _, c := range []struct {
		jobs []core.Job
		want []string
	}{
		{mails(3), []string{"insert"}},
		{[]core.Job{keyedMail("a", "1"), keyedMail("b", "1")}, []string{"update"}},
		{[]core.Job{keyedMail("a", "1"), mail("c")}, []string{"insert", "update", "find"}},
	} {
		sent.take()
		enqueue(t, s, c.jobs...)
		got := slices.DeleteFunc(names(sent.take()), func(name string) bool { return name == "commitTransaction" })
		if !slices.Equal(got, c.want) {
			t.Errorf("sent %v, want %v", got, c.want)
		}
	}
}

// Eight writers enqueue 400 times under 50 keys.
func TestConcurrentTransactionsUnderOneKeyMakeOneJob(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{})
	const writers, rounds, keys = 8, 50, 50
	var inserted, duplicates, runs atomic.Int64
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range rounds {
				var receipts []core.Receipt
				err := s.InTransaction(t.Context(), func(ctx context.Context) (err error) {
					runs.Add(1)
					receipts, err = s.Enqueue(ctx, keyedMail(fmt.Sprint((i*7+w)%keys), "same"))
					return err
				})
				if err != nil {
					t.Errorf("writer %d: %v", w, err)
					return
				}
				if receipts[0].Duplicate {
					duplicates.Add(1)
				} else {
					inserted.Add(1)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d conflicts were run again", runs.Load()-writers*rounds)
	if inserted.Load() != keys || duplicates.Load() != writers*rounds-keys || len(jobsOf(t, s)) != keys {
		t.Errorf("%d inserted, %d duplicates, %d jobs", inserted.Load(), duplicates.Load(), len(jobsOf(t, s)))
	}
}

func TestADuplicateWithinATransactionIsTold(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *Store) {
		r := enqueue(t, s, keyedMail("k", "1"), keyedMail("k", "1"), keyedMail("k", "2"), keyedMail("l", "1"))
		id := r[0].ID
		want := []core.Receipt{
			{ID: id}, {ID: id, Duplicate: true, State: core.JobReady}, {ID: id, Duplicate: true, State: core.JobReady, Mismatch: true}, {ID: r[3].ID},
		}
		if !slices.Equal(r, want) || len(jobsOf(t, s)) != 2 {
			t.Errorf("receipts %+v of %d jobs", r, len(jobsOf(t, s)))
		}
	})
}

// Its time is over, and the TTL has not removed it yet.
func TestAJobWhoseTimeIsOverGivesWay(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *Store) {
		id := enqueue(t, s, keyedMail("k", "1"))[0].ID
		settleAll(t, s, core.Settlement{Kind: core.Complete, Receipt: "first"}, claim(t, s, 1)...)
		setJob(t, s, id, bson.D{{Key: "expire_at", Value: fromNow(time.Second)}})
		if r := enqueue(t, s, keyedMail("k", "2"))[0]; !r.Duplicate || r.State != core.JobCompleted || !r.Mismatch {
			t.Errorf("a second before its end: %+v", r)
		}
		setJob(t, s, id, bson.D{{Key: "expire_at", Value: "$$NOW"}})
		r := enqueue(t, s, keyedMail("k", "2"), keyedMail("k", "2"))
		if r[0] != (core.Receipt{ID: id}) || !r[1].Duplicate || r[1].Mismatch {
			t.Errorf("after its end: %+v", r)
		}
		claimed := claim(t, s, 5)
		if len(claimed) != 1 || string(claimed[0].Lease.Event.Payload) != "2" || claimed[0].Lease.Attempt != 1 {
			t.Fatalf("claimed %v", payloads(claimed))
		}
		if job := jobOf(t, s, claimed[0]); !job.Lookup("result").IsZero() || !job.Lookup("expire_at").IsZero() {
			t.Errorf("something is left of the first: %s", job)
		}
	})
}

func TestIDsAreMadeAsDocumented(t *testing.T) {
	t.Parallel()
	space := uuid.NewSHA1(uuid.NameSpaceURL, []byte("shop"))
	want := uuid.NewSHA1(space, []byte("acme\x00order-1"))
	if got := dedupID("shop", "acme", "order-1"); got != want || got.Version() != 5 {
		t.Errorf("got %s, want %s", got, want)
	}
	if dedupID("shop", "a", "b") == dedupID("shop", "ab", "") || dedupID("shop", "a", "b") == dedupID("bank", "a", "b") {
		t.Error("ids of different tenants or systems are the same")
	}
	db := servicetest.Database(t)
	shop := newStore(t, db, Config{IDNamespace: "shop"})
	bank := newStore(t, db, Config{IDNamespace: "bank"})
	j := keyedMail("order-1", "x")
	j.Tenant = "acme"
	if r := enqueue(t, shop, j)[0]; r.ID != want.String() {
		t.Errorf("got %s, want %s", r.ID, want)
	}
	if r := enqueue(t, bank, j)[0]; r.Duplicate {
		t.Errorf("another system's job is a duplicate: %+v", r)
	}
	if c := claimAs(t, shop, core.ClaimRequest{Max: 1}); c[0].ID != want.String() || c[0].Lease.Event.ID != want.String() {
		t.Errorf("claimed %+v", c[0])
	}
}

func TestPayloadsAreSealedAndTheirHashIsKeyed(t *testing.T) {
	t.Parallel()
	db := servicetest.Database(t)
	s := newStore(t, db, Config{Codec: reverse{}, HashKey: []byte("sixteen bytes or")})
	id := enqueue(t, s, keyedMail("k", "abc"))[0].ID
	job := jobNamed(t, s, id)
	if _, data := job.Lookup("payload").Binary(); string(data) != "cba" {
		t.Errorf("stored %q", data)
	}
	plain, err := New(db, Config{})
	if err != nil {
		t.Fatal(err)
	}
	want := keyedMail("k", "abc")
	if _, sum := job.Lookup("hash").Binary(); bytes.Equal(sum, plain.hashJob(&want).sum.Data) {
		t.Error("the hash can be found by guessing")
	}
	if r := enqueue(t, s, keyedMail("k", "abc"), keyedMail("k", "other")); r[0].Mismatch || !r[1].Mismatch {
		t.Errorf("receipts %+v", r)
	}
	rotated := newStore(t, db, Config{Codec: reverse{}, HashKey: []byte("another key of 16")})
	if r := enqueue(t, rotated, keyedMail("k", "abc"))[0]; r.Mismatch {
		t.Errorf("another key makes it another content: %+v", r)
	}
	unkeyed := newStore(t, db, Config{Codec: reverse{}})
	if r := enqueue(t, unkeyed, keyedMail("l", "abc"))[0]; !jobNamed(t, s, r.ID).Lookup("hash").IsZero() {
		t.Error("a sealed payload has a plain hash beside it")
	}
	for _, c := range claim(t, s, 5) {
		if string(c.Lease.Event.Payload) != "abc" || c.Err != nil {
			t.Errorf("opened %q, %v", c.Lease.Event.Payload, c.Err)
		}
	}
}

func TestContentIsWhatIsDelivered(t *testing.T) {
	t.Parallel()
	s, err := New(servicetest.Database(t), Config{})
	if err != nil {
		t.Fatal(err)
	}
	full := func() core.Job {
		return core.Job{
			Event: core.Event{
				ID: "1", Aggregate: "order", AggregateID: "o-1", Type: "t", Version: 1, AggregateVersion: 2, Payload: []byte("p"),
				ContentType: "text/plain", Headers: map[string]string{"a": "1"}, Tenant: "acme", OccurredAt: time.Unix(1, 0), CorrelationID: "c",
			},
			Sink: "mail", DedupKey: "k",
		}
	}
	base := full()
	for name, change := range map[string]func(*core.Job){
		"id":             func(j *core.Job) { j.ID = "2" },
		"time":           func(j *core.Job) { j.OccurredAt = time.Unix(2, 0) },
		"correlation id": func(j *core.Job) { j.CorrelationID = "d" },
		"trace":          func(j *core.Job) { j.Headers["traceparent"] = "00-1-2-01" },
		"header's case":  func(j *core.Job) { j.Headers = map[string]string{"A": "1"} },
		"settings":       func(j *core.Job) { j.Priority, j.MaxAttempts, j.NotBefore = core.High, 3, time.Unix(9, 0) },
	} {
		j := full()
		change(&j)
		if s.hashJob(&j).differs(s.hashJob(&base)) {
			t.Errorf("another %s is another content", name)
		}
	}
	for name, change := range map[string]func(*core.Job){
		"sink":         func(j *core.Job) { j.Sink = "sms" },
		"type":         func(j *core.Job) { j.Type = "u" },
		"payload":      func(j *core.Job) { j.Payload = []byte("q") },
		"key":          func(j *core.Job) { j.AggregateID = "o-2" },
		"version":      func(j *core.Job) { j.Version = 2 },
		"content type": func(j *core.Job) { j.ContentType = "text/html" },
		"header":       func(j *core.Job) { j.Headers["a"] = "2" },
		"field":        func(j *core.Job) { j.Aggregate, j.AggregateID = "ordero", "-1" },
	} {
		j := full()
		change(&j)
		if !s.hashJob(&j).differs(s.hashJob(&base)) {
			t.Errorf("another %s is the same content", name)
		}
	}
}

func TestAJobCarriesTheTraceOn(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{AllowNoTransaction: true})
	ctx := trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled,
	}))
	if _, err := s.Enqueue(ctx, mail("a")); err != nil {
		t.Fatal(err)
	}
	if h := claim(t, s, 1)[0].Lease.Event.Headers["traceparent"]; h == "" {
		t.Error("no traceparent")
	}
}
