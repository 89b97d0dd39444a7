package core_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gooutbox/outbox/core"
)

func valid() core.Event {
	return core.Event{Aggregate: "order", AggregateID: "o-1", Type: "order.placed", Payload: []byte("{}")}
}

func TestValidateNamesTheFieldAndTheLimit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*core.Event)
		field  string
		limit  int
		says   string
	}{
		"no type":                {func(e *core.Event) { e.Type = "" }, "Type", 0, "empty"},
		"no key":                 {func(e *core.Event) { e.AggregateID = "" }, "AggregateID", 0, "empty"},
		"long key":               {func(e *core.Event) { e.AggregateID = strings.Repeat("k", 1025) }, "AggregateID", 1024, "1025 bytes, limit 1024"},
		"long type":              {func(e *core.Event) { e.Type = strings.Repeat("t", 256) }, "Type", 255, "limit 255"},
		"line break in tenant":   {func(e *core.Event) { e.Tenant = "a\nb" }, "Tenant", 0, "control"},
		"broken UTF-8":           {func(e *core.Event) { e.CorrelationID = "\xff" }, "CorrelationID", 0, "UTF-8"},
		"negative version":       {func(e *core.Event) { e.Version = -1 }, "Version", 0, "negative"},
		"negative count":         {func(e *core.Event) { e.AggregateVersion = -1 }, "AggregateVersion", 0, "negative"},
		"year 10000":             {func(e *core.Event) { e.OccurredAt = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) }, "OccurredAt", 0, "RFC 3339"},
		"header with a space":    {func(e *core.Event) { e.Headers = map[string]string{"a b": "x"} }, `Headers["a b"]`, 0, "token"},
		"header without a name":  {func(e *core.Event) { e.Headers = map[string]string{"": "x"} }, "Headers", 0, "empty name"},
		"header split":           {func(e *core.Event) { e.Headers = map[string]string{"a": "x\r\nb: y"} }, `Headers["a"]`, 0, "control"},
		"header with high C1":    {func(e *core.Event) { e.Headers = map[string]string{"a": "x\u0085"} }, `Headers["a"]`, 0, "control"},
		"reserved header":        {func(e *core.Event) { e.Headers = map[string]string{"Ce-Id": "x"} }, `Headers["Ce-Id"]`, 0, "reserved"},
		"reserved kafka header":  {func(e *core.Event) { e.Headers = map[string]string{"ce_id": "x"} }, `Headers["ce_id"]`, 0, "reserved"},
		"header in two cases":    {func(e *core.Event) { e.Headers = map[string]string{"a": "x", "A": "y"} }, "Headers[", 0, "twice"},
		"too large":              {func(e *core.Event) { e.Payload = make([]byte, 1<<20) }, "Event", 1 << 20, "the event is too large: 1048596 bytes"},
		"header name over limit": {func(e *core.Event) { e.Headers = map[string]string{strings.Repeat("h", 300): "x"} }, "Headers[", 255, "too long"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := valid()
			c.change(&e)
			err := e.Validate(0)
			if !errors.Is(err, core.ErrInvalidEvent) {
				t.Fatalf("got %v, want ErrInvalidEvent", err)
			}
			fe, ok := errors.AsType[*core.FieldError](err)
			if !ok {
				t.Fatalf("no FieldError in %v", err)
			}
			if !strings.HasPrefix(fe.Field, c.field) || fe.Limit != c.limit || !strings.Contains(err.Error(), c.says) {
				t.Fatalf("got field %q limit %d: %v", fe.Field, fe.Limit, err)
			}
		})
	}
}

func TestValidateReportsEveryProblemAtOnce(t *testing.T) {
	t.Parallel()
	e := core.Event{Version: -1, Headers: map[string]string{"a b": "x"}}
	got := e.Validate(0).Error()
	for _, want := range []string{"Type", "AggregateID", "Version", `Headers["a b"]`} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in %q", want, got)
		}
	}
}

func TestValidateNeverRepeatsAValue(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t"
	e := valid()
	e.Tenant = secret + "\n"
	e.CorrelationID = secret + "\x00"
	e.Headers = map[string]string{"authorization": secret + "\r\n"}
	if got := e.Validate(0).Error(); strings.Contains(got, secret) {
		t.Fatalf("the value stands in %q", got)
	}
}

func TestValidateAcceptsWhatTravels(t *testing.T) {
	t.Parallel()
	e := valid()
	e.AggregateID, e.Tenant = "Bestellung-Ü-№7", "Tenant 日本"
	e.Headers = map[string]string{"x-note": "tab\tand ünïcode", "cell-id": "7", "ceiling": "9"}
	e.OccurredAt = time.Now()
	e.Payload = nil
	if err := e.Validate(0); err != nil {
		t.Fatal(err)
	}
}
