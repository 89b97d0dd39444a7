package mongo

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.opentelemetry.io/otel/trace"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
)

func TestAppendOutsideATransactionIsRefused(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{})
	err := s.InTransaction(t.Context(), func(context.Context) error {
		return s.Append(t.Context(), order("outer")) // the outer context, by mistake
	})
	if !errors.Is(err, core.ErrNoTransaction) {
		t.Fatalf("got %v, want ErrNoTransaction", err)
	}
	session, err := s.client.StartSession()
	if err != nil {
		t.Fatal(err)
	}
	defer session.EndSession(t.Context())
	if err := s.Append(mongo.NewSessionContext(t.Context(), session), order("session")); !errors.Is(err, core.ErrNoTransaction) {
		t.Fatalf("a session without a transaction: got %v, want ErrNoTransaction", err)
	}
	if n := count(t, s.log, bson.D{}); n != 0 {
		t.Fatalf("%d events were written", n)
	}
}

func TestAnAbortedTransactionLeavesNothing(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{})
	abort := errors.New("the order is out of stock")
	err := s.InTransaction(t.Context(), func(ctx context.Context) error {
		if err := s.Append(ctx, order("phantom")); err != nil {
			return err
		}
		return abort
	})
	if err != abort { //nolint:errorlint // the function's own error, as it is
		t.Fatalf("got %v, want the function's own error", err)
	}
	if n := count(t, s.log, bson.D{}); n != 0 {
		t.Fatalf("%d events were written", n)
	}
}

func TestAppendAllowedWithoutATransaction(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *Store) {
		s.cfg.AllowNoTransaction = true
		if err := s.Append(t.Context(), order("a")); err != nil {
			t.Fatal(err)
		}
		if n := count(t, s.log, bson.D{}); n != 1 {
			t.Fatalf("%d events, want 1", n)
		}
	})
}

func TestAppendJoinsATransactionThatTheCallerStarted(t *testing.T) {
	t.Parallel()
	db := servicetest.Database(t)
	s := newStore(t, db, Config{})
	session, err := db.Client().StartSession()
	if err != nil {
		t.Fatal(err)
	}
	defer session.EndSession(t.Context())
	_, err = session.WithTransaction(t.Context(), func(ctx context.Context) (any, error) {
		// A nested InTransaction joins: nothing is committed by it.
		if err := s.InTransaction(ctx, func(ctx context.Context) error { return s.Append(ctx, order("nested")) }); err != nil {
			return nil, err
		}
		if n := count(t, s.log, bson.D{}); n != 0 {
			t.Errorf("%d events are visible before the commit", n)
		}
		return nil, s.Append(ctx, order("direct"))
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := count(t, s.log, bson.D{}); n != 2 {
		t.Fatalf("%d events, want 2", n)
	}
}

func TestATransactionOfAnotherClientIsRefused(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{AllowNoTransaction: true})
	session, err := servicetest.Mongo(t).StartSession()
	if err != nil {
		t.Fatal(err)
	}
	defer session.EndSession(t.Context())
	_, err = session.WithTransaction(t.Context(), func(ctx context.Context) (any, error) { return nil, s.Append(ctx, order("a")) })
	if !errors.Is(err, ErrOtherClient) {
		t.Errorf("Append: got %v, want ErrOtherClient", err)
	}
	_, err = session.WithTransaction(t.Context(), func(ctx context.Context) (any, error) {
		return nil, s.InTransaction(ctx, func(context.Context) error { return nil })
	})
	if !errors.Is(err, ErrOtherClient) {
		t.Errorf("InTransaction: got %v, want ErrOtherClient", err)
	}
}

func TestADuplicateIDIsTold(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{})
	appendNow(t, s, order("taken"))
	for _, swallow := range []bool{false, true} {
		runs := 0
		err := s.InTransaction(t.Context(), func(ctx context.Context) error {
			runs++
			err := s.Append(ctx, order("fresh"), order("taken"))
			if swallow {
				return nil
			}
			return err
		})
		duplicate, ok := errors.AsType[*core.DuplicateIDError](err)
		if !ok || duplicate.ID != "taken" {
			t.Errorf("swallowed %v: got %v, want a DuplicateIDError of taken", swallow, err)
		}
		if runs != 1 {
			t.Errorf("swallowed %v: the function ran %d times", swallow, runs)
		}
	}
	if n := count(t, s.log, bson.D{}); n != 1 {
		t.Errorf("%d events, want 1", n)
	}
}

func TestADuplicateOfAnotherUniqueIndexIsNoDuplicateID(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{})
	_, err := s.log.Indexes().CreateOne(t.Context(), mongo.IndexModel{
		Keys:    bson.D{{Key: "correlation_id", Value: 1}},
		Options: optionsUnique(),
	})
	if err != nil {
		t.Fatal(err)
	}
	appendNow(t, s, order("a"))
	err = s.InTransaction(t.Context(), func(ctx context.Context) error { return s.Append(ctx, order("b")) })
	if _, ok := errors.AsType[*core.DuplicateIDError](err); ok || !mongo.IsDuplicateKeyError(err) {
		t.Fatalf("got %v, want the server's own duplicate key error", err)
	}
}

func TestInvalidEventsAreRefusedAndTheTransactionGoesOn(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{MaxEventBytes: 100})
	big := order("big")
	big.Payload = make([]byte, 101)
	header := order("header")
	header.Headers = map[string]string{"not a token": "x"}
	err := s.InTransaction(t.Context(), func(ctx context.Context) error {
		for name, events := range map[string][]core.Event{
			"no type": {{AggregateID: "k"}}, "no key": {{Type: "t"}}, "too large": {big}, "bad header": {header},
			"one id twice": {order("same"), order("same")},
		} {
			if err := s.Append(ctx, events...); !errors.Is(err, core.ErrInvalidEvent) {
				t.Errorf("%s: got %v, want ErrInvalidEvent", name, err)
			}
		}
		err := s.Append(ctx, big)
		if field, ok := errors.AsType[*core.FieldError](err); !ok || field.Limit != 100 || field.Size != big.Size() {
			t.Errorf("got %v, want size and limit", err)
		}
		return s.Append(ctx, order("good"))
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := count(t, s.log, bson.D{}); n != 1 {
		t.Fatalf("%d events, want 1", n)
	}
}

func TestAppendFillsInWhatIsMissing(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{})
	span := trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled, Remote: true,
	})
	traced := order("traced")
	traced.Headers = map[string]string{"Traceparent": "the caller's"}
	plain := order("")
	plain.Headers = map[string]string{"x": "y"}
	start := time.Now().Add(-time.Second)
	err := s.InTransaction(trace.ContextWithRemoteSpanContext(t.Context(), span), func(ctx context.Context) error {
		return s.Append(ctx, plain, traced)
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(plain.Headers) != 1 || plain.ID != "" {
		t.Errorf("the caller's event was changed: %+v", plain)
	}
	got := readAll(t, s)
	e := got[0]
	if id, err := uuid.Parse(e.ID); err != nil || id.Version() != 7 {
		t.Errorf("id %q is no UUIDv7", e.ID)
	}
	if e.OccurredAt.Before(start) || e.OccurredAt.After(time.Now()) || e.OccurredAt.Nanosecond()%1e6 != 0 {
		t.Errorf("occurred at %s", e.OccurredAt)
	}
	if want := "00-01000000000000000000000000000000-0200000000000000-01"; e.Headers["traceparent"] != want || e.Headers["x"] != "y" {
		t.Errorf("headers %v, want traceparent %s beside x", e.Headers, want)
	}
	if h := got[1].Headers; len(h) != 1 || h["Traceparent"] != "the caller's" {
		t.Errorf("the caller's trace was changed: %v", h)
	}
}

// readAll decodes the log in the order of seq.
func readAll(t *testing.T, s *Store) []core.Event {
	t.Helper()
	found, err := s.log.Find(t.Context(), bson.D{}, sortBySeq())
	if err != nil {
		t.Fatal(err)
	}
	var docs []bson.Raw
	if err := found.All(t.Context(), &docs); err != nil {
		t.Fatal(err)
	}
	events := make([]core.Event, len(docs))
	for i, doc := range docs {
		if events[i], err = s.decodeEvent(t.Context(), doc); err != nil {
			t.Fatal(err)
		}
	}
	return events
}

func TestAppendTakesOneRoundTrip(t *testing.T) {
	t.Parallel()
	for _, serialize := range []bool{false, true} {
		var sent commands
		s := newStore(t, servicetest.Database(t, sent.options()), Config{SerializeKeys: serialize})
		appendNow(t, s, order("warm up")) // reads the layout's version
		sent.take()
		a, b, c := order("a"), order("b"), order("c")
		a.AggregateID, b.AggregateID, c.AggregateID = "2", "1", "2"
		appendNow(t, s, a, b, c)
		want := []string{"insert", "commitTransaction"}
		if serialize {
			want = []string{"update", "insert", "commitTransaction"}
		}
		if got := names(sent.take()); !slices.Equal(got, want) {
			t.Errorf("SerializeKeys %v: sent %v, want %v", serialize, got, want)
		}
	}
}

func TestManyLargeEventsFitIntoOneAppend(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{})
	events := make([]core.Event, 60)
	for i := range events {
		events[i] = order("")
		events[i].Payload = make([]byte, 1<<20-1000)
	}
	appendNow(t, s, events...)
	if n := count(t, s.log, bson.D{}); n != 60 {
		t.Fatalf("%d events, want 60", n)
	}
}

func TestTheLargestEventFitsIntoAChangeEvent(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{MaxEventBytes: LargestEventBytes, Collection: strings.Repeat("l", 150)})
	stream, err := s.log.Watch(t.Context(), mongo.Pipeline{})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close(t.Context()) //nolint:errcheck // read only
	e := order(strings.Repeat("i", 255))
	e.Payload = make([]byte, LargestEventBytes-e.Size()+len(e.Payload))
	appendNow(t, s, e)
	if !stream.Next(t.Context()) {
		t.Fatal(stream.Err())
	}
	got, err := s.decodeEvent(t.Context(), stream.Current.Lookup("fullDocument").Document())
	if err != nil || len(got.Payload) != len(e.Payload) {
		t.Fatalf("%d bytes, %v; want %d", len(got.Payload), err, len(e.Payload))
	}
	headers := order("headers")
	headers.Headers = map[string]string{}
	for i := range 10_000 {
		headers.Headers[strconv.Itoa(i)] = "x"
	}
	headers.Payload = make([]byte, LargestEventBytes-headers.Size()+len(headers.Payload))
	err = s.InTransaction(t.Context(), func(ctx context.Context) error { return s.Append(ctx, headers) })
	if field, ok := errors.AsType[*core.FieldError](err); !ok || field.Limit != maxDocumentBytes {
		t.Fatalf("got %v, want the limit of a stored document", err)
	}
}
