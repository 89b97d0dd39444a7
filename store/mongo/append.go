package mongo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.opentelemetry.io/otel/propagation"

	"github.com/gooutbox/outbox/core"
)

const (
	// maxDocumentBytes is the largest document that is stored. The server takes
	// 16 MiB, and 16 KiB more for what a change event adds to it; as much is left
	// for what a tool on the way may add.
	maxDocumentBytes = 16<<20 - 16<<10
	// LargestEventBytes bounds Config.MaxEventBytes. The stored document of an
	// event of this size fits into one change event, unless it has thousands
	// of headers.
	LargestEventBytes = maxDocumentBytes - 16<<10
)

// Append writes events to the log in the transaction that ctx carries. They
// are read by cursors when it commits, and don't exist if it doesn't.
//
// An event without an ID gets a UUIDv7; one without OccurredAt the time of the
// call; times are cut to milliseconds. Where the caller set no trace headers
// and ctx holds a span, W3C trace context is added to the headers. events
// themselves are not changed.
//
// Nothing is sent, and the transaction goes on, when the error is
// core.ErrNoTransaction (ctx is not the one that the transaction's function was
// given), ErrOtherClient, or matches core.ErrInvalidEvent. After any other error
// the transaction can't be committed: return it from the transaction's
// function. A *core.DuplicateIDError tells an ID that the log holds already.
//
// It takes one round trip, a second one with SerializeKeys, and one more for
// each 48 MB or 100,000 events.
func (s *Store) Append(ctx context.Context, events ...core.Event) error {
	running, err := s.running(ctx)
	if err != nil {
		return fmt.Errorf("appending events: %w", err)
	}
	if !running && !s.cfg.AllowNoTransaction {
		return fmt.Errorf("appending events: %w", core.ErrNoTransaction)
	}
	if len(events) == 0 {
		return nil
	}
	if err := s.validate(events); err != nil {
		return fmt.Errorf("appending events: %w", err)
	}
	if err := s.checkLayout(ctx); err != nil {
		return fmt.Errorf("appending events: %w", err)
	}
	docs, ids, err := s.documents(ctx, events)
	if err != nil {
		return fmt.Errorf("appending events: %w", err)
	}
	if !running {
		ctx = withoutSession(ctx)
	}
	if err := s.insert(ctx, events, docs, ids, running); err != nil {
		if t, ok := ctx.Value(transactionKey{}).(*transaction); ok && t.failed == nil {
			t.failed = err
		}
		return err
	}
	s.metrics.appended.Add(ctx, int64(len(events)), s.logAttributes())
	return nil
}

func (s *Store) validate(events []core.Event) error {
	var errs []error
	ids := make(map[string]struct{}, len(events))
	for i := range events {
		err := events[i].Validate(s.cfg.MaxEventBytes)
		if _, twice := ids[events[i].ID]; twice && events[i].ID != "" {
			err = errors.Join(err, fmt.Errorf("%w: %w", core.ErrInvalidEvent,
				&core.FieldError{Field: "ID", Problem: "is that of another event of the same call"}))
		}
		ids[events[i].ID] = struct{}{}
		if err != nil && len(events) > 1 {
			err = fmt.Errorf("event %d: %w", i, err)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// documents makes the stored form of events, and tells their ids.
func (s *Store) documents(ctx context.Context, events []core.Event) ([]bson.Raw, []string, error) {
	docs, ids := make([]bson.Raw, len(events)), make([]string, len(events))
	trace := s.traceHeaders(ctx)
	now := time.Now()
	for i, e := range events {
		if e.ID == "" {
			id, err := uuid.NewV7()
			if err != nil {
				return nil, nil, fmt.Errorf("making an event's id: %w", err)
			}
			e.ID = id.String()
		}
		if e.OccurredAt.IsZero() {
			e.OccurredAt = now
		}
		e.OccurredAt = cutTime(e.OccurredAt)
		e.Headers = withTrace(e.Headers, trace)
		doc, err := s.document(ctx, &e)
		if err != nil {
			return nil, nil, err
		}
		if len(doc) > maxDocumentBytes {
			return nil, nil, fmt.Errorf("%w: %w", core.ErrInvalidEvent, &core.FieldError{
				Field: core.WholeEvent, Problem: "is too large as it is stored", Limit: maxDocumentBytes, Size: len(doc),
			})
		}
		docs[i], ids[i] = doc, e.ID
	}
	return docs, ids, nil
}

// document seals the payload where a codec is configured.
func (s *Store) document(ctx context.Context, e *core.Event) (bson.Raw, error) {
	payload, codec, keyID, err := s.seal(ctx, e)
	if err != nil {
		return nil, err
	}
	doc, err := bson.Marshal(s.encodeEvent(e, payload, codec, keyID))
	if err != nil {
		return nil, fmt.Errorf("encoding event %q: %w", e.ID, err)
	}
	return doc, nil
}

func (s *Store) seal(ctx context.Context, e *core.Event) (payload []byte, codec, keyID string, err error) {
	if s.cfg.Codec == nil {
		return e.Payload, "", "", nil
	}
	payload, keyID, err = s.cfg.Codec.Seal(ctx, e.Payload, []byte(e.ID))
	if err != nil {
		return nil, "", "", fmt.Errorf("sealing the payload of event %q: %w", e.ID, err)
	}
	return payload, s.cfg.Codec.Name(), keyID, nil
}

// insert writes the documents, and before them the documents of their keys.
func (s *Store) insert(ctx context.Context, events []core.Event, docs []bson.Raw, ids []string, running bool) error {
	if s.cfg.SerializeKeys && running {
		if err := s.touchKeys(ctx, events); err != nil {
			return fmt.Errorf("appending events: %w", err)
		}
	}
	_, err := s.log.InsertMany(ctx, docs)
	if err == nil {
		return nil
	}
	if id, ok := duplicateID(err, ids); ok {
		return fmt.Errorf("appending events: %w", &core.DuplicateIDError{ID: id})
	}
	if isNoTransactions(err) {
		err = fmt.Errorf("%w: %w", errNoTransactions, err)
	}
	return fmt.Errorf("appending events: %w", err)
}

// duplicateID finds the event whose _id was there already.
func duplicateID(err error, ids []string) (string, bool) {
	bulk, ok := errors.AsType[mongo.BulkWriteException](err)
	if !ok {
		return "", false
	}
	for _, e := range bulk.WriteErrors {
		if e.Code != codeDuplicateKey || e.Index < 0 || e.Index >= len(ids) {
			continue
		}
		// Another unique index of an existing collection is another matter.
		if pattern, ok := e.Raw.Lookup("keyPattern").DocumentOK(); ok && pattern.Lookup("_id").IsZero() {
			continue
		}
		return ids[e.Index], true
	}
	return "", false
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
	if len(trace) == 0 {
		return headers
	}
	for name := range headers {
		if slices.ContainsFunc(trace.Keys(), func(key string) bool { return strings.EqualFold(key, name) }) {
			return headers
		}
	}
	with := make(map[string]string, len(headers)+len(trace))
	maps.Copy(with, headers)
	maps.Copy(with, trace)
	return with
}

// withoutSession keeps a read of the store's own out of the caller's
// transaction.
func withoutSession(ctx context.Context) context.Context {
	return mongo.NewSessionContext(ctx, nil)
}
