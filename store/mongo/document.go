package mongo

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/gooutbox/outbox/core"
)

// decodeEvent reads a stored document. Nothing in the event points into raw.
//
// When the document is no event the error is a *DecodeError, which no retry
// can cure, and the event holds what could be read. Any other error means that
// the codec couldn't open the payload now: read the document again later.
func (s *Store) decodeEvent(ctx context.Context, raw bson.Raw) (core.Event, error) {
	d := decoder{store: s, raw: raw}
	els := walk(raw)
	for els.next() {
		if c, ok := s.columns[string(els.name)]; ok {
			d.field(c, els.name, els.value)
		}
	}
	if els.err != nil {
		d.fail("_id", els.err.Error())
	}
	d.required(s.cfg.Fields.ID, d.event.ID)
	d.required(s.cfg.Fields.AggregateID, d.event.AggregateID)
	d.required(s.cfg.Fields.Type, d.event.Type)
	if !d.hasPayload {
		d.lacks(s.cfg.Fields.Payload)
	}
	if d.err != nil {
		return d.event, d.err
	}
	if d.codec != "" {
		return s.open(ctx, d.event, d.codec, d.keyID)
	}
	return d.event, nil
}

// open opens a sealed payload.
func (s *Store) open(ctx context.Context, e core.Event, codec, keyID string) (core.Event, error) {
	field := s.cfg.Fields.Codec
	if s.cfg.Codec == nil || s.cfg.Codec.Name() != codec {
		return e, &DecodeError{Field: field, Problem: fmt.Sprintf("says that %q sealed the payload, which is not the configured codec", codec)}
	}
	payload, err := s.cfg.Codec.Open(ctx, e.Payload, []byte(e.ID), keyID)
	if err != nil {
		if core.ResultOf("", err).Outcome == core.Rejected {
			return e, &DecodeError{Field: s.cfg.Fields.Payload, Problem: "can't be opened", err: err}
		}
		return e, fmt.Errorf("opening the payload of event %q: %w", e.ID, err)
	}
	e.Payload = payload
	return e, nil
}

// decoder gathers an event field by field, and the first error.
type decoder struct {
	store        *Store
	raw          bson.Raw
	event        core.Event
	hasPayload   bool
	codec, keyID string
	err          error
}

func (d *decoder) fail(field, problem string) {
	if d.err == nil {
		d.err = &DecodeError{Field: field, Problem: problem}
	}
}

func (d *decoder) required(field, value string) {
	if value == "" {
		d.lacks(field)
	}
}

// lacks says how a field that an event needs is not there.
func (d *decoder) lacks(field string) {
	problem := "is missing"
	if v := d.raw.Lookup(field); v.Type == bson.TypeNull {
		problem = "is null"
	} else if !v.IsZero() {
		problem = "is empty"
	}
	d.fail(field, problem)
}

func (d *decoder) field(c column, name []byte, v bson.RawValue) {
	// A null stands for a field that isn't there, as many producers write it.
	if v.Type == bson.TypeNull {
		return
	}
	e := &d.event
	switch c {
	case columnID:
		d.text(&e.ID, name, v)
	case columnAggregate:
		d.text(&e.Aggregate, name, v)
	case columnAggregateID:
		d.text(&e.AggregateID, name, v)
	case columnType:
		d.text(&e.Type, name, v)
	case columnContentType:
		d.text(&e.ContentType, name, v)
	case columnTenant:
		d.text(&e.Tenant, name, v)
	case columnCorrelationID:
		d.text(&e.CorrelationID, name, v)
	case columnCodec:
		d.text(&d.codec, name, v)
	case columnKeyID:
		d.text(&d.keyID, name, v)
	case columnVersion:
		e.Version = int(d.whole(name, v, math.MaxInt32))
	case columnAggregateVersion:
		e.AggregateVersion = d.whole(name, v, math.MaxInt64)
	case columnOccurredAt:
		d.moment(name, v)
	case columnHeaders:
		d.headers(name, v)
	case columnPayload:
		d.payload(name, v)
	case columnNone:
	}
}

// wrong notes that a field's type is not one that the field can have.
func (d *decoder) wrong(name []byte, v bson.RawValue, want string) {
	d.fail(string(name), "is of type "+kindOf(v.Type)+", want "+want)
}

func (d *decoder) text(into *string, name []byte, v bson.RawValue) {
	text, ok := textOf(v)
	if !ok {
		d.wrong(name, v, "a string, ObjectId, UUID or whole number")
		return
	}
	*into = text
}

func (d *decoder) whole(name []byte, v bson.RawValue, limit int64) int64 {
	n, ok := wholeOf(v)
	switch {
	case !ok:
		d.wrong(name, v, "a whole number")
	case n < 0 || n > limit:
		d.fail(string(name), fmt.Sprintf("is a number outside 0 to %d", limit))
	default:
		return n
	}
	return 0
}

func (d *decoder) moment(name []byte, v bson.RawValue) {
	t, ok := momentOf(v)
	switch {
	case !ok:
		d.wrong(name, v, "a date")
	case t.Year() < 1 || t.Year() > 9999:
		d.fail(string(name), "is a date outside the years 1 to 9999")
	default:
		d.event.OccurredAt = t
	}
}

func (d *decoder) headers(name []byte, v bson.RawValue) {
	if v.Type != bson.TypeEmbeddedDocument {
		d.wrong(name, v, "a document of strings")
		return
	}
	els := walk(v.Value)
	for els.next() {
		if els.value.Type == bson.TypeNull {
			continue
		}
		value, ok := headerOf(els.value)
		if !ok {
			d.wrong(slices.Concat(name, []byte("."), els.name), els.value, "a string")
			continue
		}
		if d.event.Headers == nil {
			d.event.Headers = map[string]string{}
		}
		d.event.Headers[string(els.name)] = value
	}
	if els.err != nil {
		d.fail(string(name), els.err.Error())
	}
}

func (d *decoder) payload(name []byte, v bson.RawValue) {
	switch v.Type {
	case bson.TypeBinary:
		if _, data, ok := bytesOf(v); ok {
			d.event.Payload, d.hasPayload = slices.Clone(data), true
			return
		}
	case bson.TypeString, bson.TypeSymbol:
		if data, ok := stringOf(v); ok {
			d.event.Payload, d.hasPayload = slices.Clone(data), true
			return
		}
	case bson.TypeEmbeddedDocument, bson.TypeArray:
		text, err := jsonOf(v)
		if err == nil {
			d.event.Payload, d.hasPayload = text, true
			if d.event.ContentType == "" {
				d.event.ContentType = core.DefaultContentType
			}
			return
		}
	}
	d.hasPayload = true // it is there, and wrong
	d.wrong(name, v, "binary, a string, a document or an array")
}

// encodeEvent makes the stored document of an event that is complete and
// valid. codec and keyID are empty unless the payload is sealed.
func (s *Store) encodeEvent(e *core.Event, payload []byte, codec, keyID string) bson.D {
	f := &s.cfg.Fields
	doc := make(bson.D, 0, 16)
	add := func(name string, value any) { doc = append(doc, bson.E{Key: name, Value: value}) }
	text := func(name, value string) {
		if value != "" {
			add(name, value)
		}
	}
	add("_id", e.ID)
	if f.ID != "_id" {
		add(f.ID, e.ID)
	}
	// The server replaces an empty timestamp by its own clock.
	add(f.Seq, bson.Timestamp{})
	text(f.Aggregate, e.Aggregate)
	add(f.AggregateID, e.AggregateID)
	add(f.Type, e.Type)
	add(f.Payload, bson.Binary{Data: payload})
	text(f.ContentType, e.ContentType)
	if e.Version != 0 {
		add(f.Version, e.Version)
	}
	if e.AggregateVersion != 0 {
		add(f.AggregateVersion, e.AggregateVersion)
	}
	if len(e.Headers) > 0 {
		add(f.Headers, sortedHeaders(e.Headers))
	}
	text(f.Tenant, e.Tenant)
	add(f.OccurredAt, bson.NewDateTimeFromTime(e.OccurredAt))
	text(f.CorrelationID, e.CorrelationID)
	text(f.Codec, codec)
	text(f.KeyID, keyID)
	return doc
}

// sortedHeaders makes one document of the same headers, always.
func sortedHeaders(headers map[string]string) bson.D {
	names := make([]string, 0, len(headers))
	for name := range headers {
		names = append(names, name)
	}
	slices.Sort(names)
	doc := make(bson.D, len(names))
	for i, name := range names {
		doc[i] = bson.E{Key: name, Value: headers[name]}
	}
	return doc
}

// cutTime is what a stored date keeps of t.
func cutTime(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }

// isDecodeError tells whether no retry can make an event of a document.
func isDecodeError(err error) bool {
	_, ok := errors.AsType[*DecodeError](err)
	return ok
}
