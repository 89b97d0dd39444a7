package outboxtest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/outboxtest"
)

// complaints is a T that remembers.
type complaints struct{ text string }

func (*complaints) Helper() {}

func (c *complaints) Errorf(format string, args ...any) { c.text += fmt.Sprintf(format, args...) }

func event(key string) core.Event {
	return core.Event{AggregateID: key, Type: "order.placed", Payload: []byte(`{"n":1}`)}
}

func TestOnlyWhatCommittedIsRecorded(t *testing.T) {
	t.Parallel()
	r := outboxtest.NewRecorder()
	broken := errors.New("no such order")
	err := r.InTransaction(t.Context(), func(ctx context.Context) error {
		if err := r.Append(ctx, event("a")); err != nil {
			return err
		}
		if _, err := r.Enqueue(ctx, core.Job{Sink: "mail", Event: event("a")}); err != nil {
			return err
		}
		return broken
	})
	if !errors.Is(err, broken) {
		t.Fatal(err)
	}
	r.AssertAppended(t)
	r.AssertEnqueued(t)
	if err := r.Append(t.Context(), event("a")); !errors.Is(err, core.ErrNoTransaction) {
		t.Errorf("outside of a transaction: %v", err)
	}
	if err := r.InTransaction(t.Context(), func(ctx context.Context) error { return r.Append(ctx, core.Event{}) }); !errors.Is(err, core.ErrInvalidEvent) {
		t.Errorf("an invalid event: %v", err)
	}
	r.AssertAppended(t)
}

func TestATransactionWithinOneIsPartOfIt(t *testing.T) {
	t.Parallel()
	r := outboxtest.NewRecorder()
	err := r.InTransaction(t.Context(), func(ctx context.Context) error {
		err := r.InTransaction(ctx, func(ctx context.Context) error { return r.Append(ctx, event("a")) })
		r.AssertAppended(t)
		return errors.Join(err, r.Append(ctx, event("b")))
	})
	if err != nil {
		t.Fatal(err)
	}
	r.AssertAppended(t, outboxtest.Like(event("a")), outboxtest.Like(event("b")))
	r.Reset()
	r.AssertAppended(t)
}

func TestADuplicateJobIsNotRecorded(t *testing.T) {
	t.Parallel()
	r := outboxtest.NewRecorder()
	job := core.Job{Sink: "mail", DedupKey: "welcome", Event: event("a")}
	for _, duplicate := range []bool{false, true} {
		err := r.InTransaction(t.Context(), func(ctx context.Context) error {
			receipts, err := r.Enqueue(ctx, job)
			if err == nil && receipts[0].Duplicate != duplicate {
				t.Errorf("%+v", receipts)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	r.AssertEnqueued(t, outboxtest.LikeJob(job))
}

// What the program does with its event afterwards changes no record.
func TestARecordIsACopy(t *testing.T) {
	t.Parallel()
	r := outboxtest.NewRecorder()
	e := event("a")
	e.Headers = map[string]string{"a": "b"}
	if err := r.InTransaction(t.Context(), func(ctx context.Context) error { return r.Append(ctx, e) }); err != nil {
		t.Fatal(err)
	}
	want := outboxtest.Like(core.Event{Payload: []byte(`{"n":1}`), Headers: map[string]string{"a": "b"}})
	e.Payload[0], e.Headers["a"] = 'x', "c"
	r.AssertAppended(t, want)
}

func TestWhatDiffersIsTold(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 31, 8, 0, 0, 0, time.UTC)
	got := core.Job{Sink: "mail", Priority: core.High, NotBefore: at, Event: core.Event{
		AggregateID: "a", Type: "t", Payload: []byte(`{"a":1,"b":[1,2]}`), Headers: map[string]string{"x": "1"}, Version: 2,
	}}
	r := outboxtest.NewRecorder()
	err := r.InTransaction(t.Context(), func(ctx context.Context) error {
		_, err := r.Enqueue(ctx, got)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		want  core.Job
		lines []string
	}{
		"nothing wanted of it": {core.Job{}, nil},
		"itself":               {got, nil},
		"json in other order":  {core.Job{Event: core.Event{Payload: []byte(`{"b": [1, 2], "a": 1}`)}}, nil},
		"same instant":         {core.Job{NotBefore: at.In(time.FixedZone("", 3600)).Add(time.Microsecond)}, nil},
		"sink":                 {core.Job{Sink: "sms"}, []string{`Sink: got "mail", want "sms"`}},
		"priority":             {core.Job{Priority: core.Low}, []string{"Priority: got high, want low"}},
		"time":                 {core.Job{NotBefore: at.Add(time.Hour)}, []string{"NotBefore: got 2026-01-31T08:00:00Z, want 2026-01-31T09:00:00Z"}},
		"version":              {core.Job{Event: core.Event{Version: 3}}, []string{"Event.Version: got 2, want 3"}},
		"payload":              {core.Job{Event: core.Event{Payload: []byte(`{"a":1,"b":[2,1]}`)}}, []string{`Event.Payload: got {"a":1,"b":[1,2]}, want {"a":1,"b":[2,1]}`}},
		"no payload":           {core.Job{Event: core.Event{Payload: []byte{}}}, []string{`Event.Payload: got {"a":1,"b":[1,2]}, want nothing`}},
		"binary":               {core.Job{Event: core.Event{Payload: []byte{255}}}, []string{`want 1 bytes ff`}},
		"headers": {
			core.Job{Event: core.Event{Headers: map[string]string{"x": "2", "y": "1"}}},
			[]string{`Event.Headers["x"]: got "1", want "2"`, `Event.Headers["y"]: is missing, want "1"`},
		},
	} {
		said := &complaints{}
		ok := r.AssertEnqueued(said, outboxtest.LikeJob(c.want))
		if ok != (len(c.lines) == 0) || ok != (said.text == "") {
			t.Errorf("%s: %v, %s", name, ok, said.text)
		}
		for _, line := range c.lines {
			if !strings.Contains(said.text, line) {
				t.Errorf("%s: no %q in %s", name, line, said.text)
			}
		}
	}
	said := &complaints{}
	big := outboxtest.Where("a version over 2", func(j core.Job) bool { return j.Version > 2 })
	if r.AssertEnqueued(said, outboxtest.All(big, outboxtest.LikeJob(core.Job{Sink: "mail"}))) || !strings.Contains(said.text, "want a version over 2") {
		t.Errorf("a condition: %s", said.text)
	}
	said = &complaints{}
	if r.AssertEnqueued(said) || !strings.Contains(said.text, "1: not wanted: t of a for sink mail") {
		t.Errorf("one too many: %s", said.text)
	}
}
