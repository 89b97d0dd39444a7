package sqlite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/propagation"

	"github.com/gooutbox/outbox/core"
)

// eventColumns are the columns of an event but its payload, in the order of
// storedEvent.fields.
const eventColumns = "event_id, aggregate, aggregate_id, event_type, content_type, version, aggregate_version, headers, tenant, occurred_at, correlation_id, codec, key_id"

// storedEvent is an event as a row has it.
type storedEvent struct {
	core.Event

	headers      string
	occurredAt   int64
	codec, keyID string
}

// fields are what a row of eventColumns is scanned into.
func (e *storedEvent) fields() []any {
	return []any{
		&e.ID, &e.Aggregate, &e.AggregateID, &e.Type, &e.ContentType, &e.Version, &e.AggregateVersion, &e.headers,
		&e.Tenant, &e.occurredAt, &e.CorrelationID, &e.codec, &e.keyID,
	}
}

// values are what eventColumns get.
func (e *storedEvent) values() []any {
	return []any{
		e.ID, e.Aggregate, e.AggregateID, e.Type, e.ContentType, e.Version, e.AggregateVersion, e.headers,
		e.Tenant, e.occurredAt, e.CorrelationID, e.codec, e.keyID,
	}
}

// DecodeError tells why a stored row is no event. It names the column and what
// would be right, never the value.
type DecodeError struct {
	// Field is the name of the column, or of the field of an event.
	Field string
	// Problem says what is wrong with it.
	Problem string
}

func (e *DecodeError) Error() string {
	return fmt.Sprintf("decoding a stored event: %s %s", e.Field, e.Problem)
}

// encode makes the stored form of an event that is complete and valid. The
// payload is sealed where a codec is configured.
func (s *Store) encode(ctx context.Context, e core.Event) (storedEvent, error) {
	stored := storedEvent{Event: e, headers: "{}", occurredAt: cutTime(e.OccurredAt).UnixMilli()}
	if len(e.Headers) > 0 {
		headers, err := json.Marshal(e.Headers)
		if err != nil {
			return stored, fmt.Errorf("encoding the headers of event %q: %w", e.ID, err)
		}
		stored.headers = string(headers)
	}
	if s.cfg.Codec != nil {
		sealed, keyID, err := s.cfg.Codec.Seal(ctx, e.Payload, []byte(e.ID))
		if err != nil {
			return stored, fmt.Errorf("sealing the payload of event %q: %w", e.ID, err)
		}
		stored.Payload, stored.codec, stored.keyID = sealed, s.cfg.Codec.Name(), keyID
	}
	if stored.Payload == nil {
		stored.Payload = []byte{} // NULL is none
	}
	return stored, nil
}

// decode fills in the Event, as far as it can be read. keyless events, those of
// jobs, need no AggregateID.
func (s *Store) decode(ctx context.Context, e *storedEvent, keyless bool) error {
	e.OccurredAt = time.UnixMilli(e.occurredAt).UTC()
	if e.headers != "{}" {
		if err := json.Unmarshal([]byte(e.headers), &e.Headers); err != nil {
			e.Headers = nil
			return &DecodeError{Field: "headers", Problem: "is no JSON object of texts"}
		}
	}
	checked := e.Event
	if keyless && checked.AggregateID == "" {
		checked.AggregateID = "-"
	}
	if err := checked.Validate(math.MaxInt); err != nil {
		field, _ := errors.AsType[*core.FieldError](err)
		return &DecodeError{Field: field.Field, Problem: field.Problem}
	}
	return s.open(ctx, e)
}

// open opens a sealed payload.
func (s *Store) open(ctx context.Context, e *storedEvent) error {
	if e.codec == "" {
		return nil
	}
	if s.cfg.Codec == nil || s.cfg.Codec.Name() != e.codec {
		return &DecodeError{Field: "codec", Problem: fmt.Sprintf("is %q, which this store is not configured with", e.codec)}
	}
	payload, err := s.cfg.Codec.Open(ctx, e.Payload, []byte(e.ID), e.keyID)
	if err != nil {
		return fmt.Errorf("opening the payload of event %q: %w", e.ID, err)
	}
	e.Payload = payload
	return nil
}

// complete assigns what an event lacks. assigned is the id that it gets.
func (s *Store) complete(e core.Event, assigned string, trace propagation.MapCarrier) core.Event {
	if e.ID == "" {
		e.ID = assigned
	}
	if e.OccurredAt.IsZero() {
		e.OccurredAt = s.now()
	}
	e.Headers = withTrace(e.Headers, trace)
	return e
}

func newID() (string, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return "", fmt.Errorf("making an id: %w", err)
	}
	return id.String(), nil
}

// traceHeaders are those that carry the span of ctx on.
func (s *Store) traceHeaders(ctx context.Context) propagation.MapCarrier {
	trace := propagation.MapCarrier{}
	s.cfg.Propagator.Inject(ctx, trace)
	return trace
}

// withTrace returns headers with those of the trace, unless the caller has set
// one of them.
func withTrace(headers map[string]string, trace propagation.MapCarrier) map[string]string {
	if len(trace) == 0 || slices.ContainsFunc(trace.Keys(), func(name string) bool { return hasName(headers, name) }) {
		return headers
	}
	with := make(map[string]string, len(headers)+len(trace))
	maps.Copy(with, headers)
	maps.Copy(with, trace)
	return with
}

// hasName compares as header names are compared.
func hasName(headers map[string]string, name string) bool {
	for have := range headers {
		if strings.EqualFold(have, name) {
			return true
		}
	}
	return false
}

// places returns n question marks.
func places(n int) string { return strings.TrimSuffix(strings.Repeat("?, ", n), ", ") }
