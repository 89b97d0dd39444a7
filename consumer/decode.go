package consumer

import (
	"strconv"
	"strings"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/wire"
)

// Header is one named value of a message.
type Header = wire.Header

// Raw is a broker's message in general terms.
type Raw struct {
	// Headers of the message, among them content-type where the broker has a
	// place of its own for it. Decode doesn't change them.
	Headers []Header
	// Prefixes are those that the names of CloudEvents attributes may have.
	Prefixes []string
	// Key is the message's key: the AggregateID in forms without an attribute
	// for it.
	Key string
	// CorrelationID and OccurredAt are used where the form carries none.
	CorrelationID string
	OccurredAt    time.Time
	// Body is the payload. It is kept.
	Body []byte
}

// Decode turns a message back into the event. form is what the sink was
// configured with; "" finds it by the headers, which is right for all events
// whose own headers don't have the names of another form. The error is a
// *DecodeError.
func Decode(raw *Raw, form Form) (Delivery, error) {
	dec := decoder{raw: raw, used: make([]bool, len(raw.Headers))}
	if form == "" {
		if form = dec.find(); form == "" {
			return Delivery{}, &DecodeError{Field: "the headers", Problem: "are of no known form: there is no " +
				wire.ID + " of CloudEvents, no " + wire.BareID + ", and no pair of " + wire.DebeziumID + " and " + wire.DebeziumType}
		}
	}
	d := Delivery{Form: form, Event: core.Event{
		AggregateID: raw.Key, Payload: raw.Body, CorrelationID: raw.CorrelationID, OccurredAt: raw.OccurredAt,
	}}
	switch form {
	case CloudEvents:
		dec.prefix = dec.findPrefix()
		dec.attributes(&d)
	case Debezium:
		d.ID, d.Type = dec.required(wire.DebeziumID), dec.required(wire.DebeziumType)
	case Bare:
		d.ID, d.Type = dec.required(wire.BareID), dec.required(wire.BareType)
		if key, ok := dec.take(wire.BareKey); ok && dec.keyed() {
			d.AggregateID = key
		}
	default:
		return Delivery{}, &DecodeError{Field: "the form", Problem: form.Validate().Error()}
	}
	dec.delivery(&d)
	dec.own(&d)
	if dec.err != nil {
		return Delivery{}, dec.err
	}
	return d, nil
}

// decoder takes headers one by one; what is left are the event's own.
type decoder struct {
	raw    *Raw
	used   []bool
	prefix string
	err    *DecodeError
}

func (dec *decoder) has(name string) bool {
	for _, h := range dec.raw.Headers {
		if h.Name == name {
			return true
		}
	}
	return false
}

// find names the form by the headers, "" if it is none.
func (dec *decoder) find() Form {
	switch {
	case dec.findPrefix() != "":
		return CloudEvents
	case dec.has(wire.BareID) && dec.has(wire.BareType):
		return Bare
	case dec.has(wire.DebeziumID) && dec.has(wire.DebeziumType):
		return Debezium
	}
	return ""
}

func (dec *decoder) findPrefix() string {
	for _, prefix := range dec.raw.Prefixes {
		if dec.has(prefix+wire.ID) && dec.has(prefix+wire.SpecVersion) {
			return prefix
		}
	}
	return ""
}

// keyed tells whether a bare message names its key in a header, see
// wire.BareKey.
func (dec *decoder) keyed() bool {
	for _, prefix := range dec.raw.Prefixes {
		if prefix == wire.AMQPPrefix {
			return true
		}
	}
	return false
}

func (dec *decoder) fail(field, problem string) {
	if dec.err == nil {
		dec.err = &DecodeError{Field: strings.ToValidUTF8(field, "?"), Problem: problem}
	}
}

// take returns a header that comes at most once.
func (dec *decoder) take(name string) (string, bool) {
	at := -1
	for i, h := range dec.raw.Headers {
		if h.Name != name {
			continue
		}
		if at >= 0 {
			dec.fail(name, "comes twice: one of them was not written by the sink")
		}
		at, dec.used[i] = i, true
	}
	if at < 0 {
		return "", false
	}
	return dec.raw.Headers[at].Value, true
}

func (dec *decoder) required(name string) string {
	value, _ := dec.take(name)
	if value == "" {
		dec.fail(name, "is missing")
	}
	return value
}

func (dec *decoder) attributes(d *Delivery) {
	p := dec.prefix
	if p == "" {
		p = dec.raw.Prefixes[0]
		dec.prefix = p
	}
	if v := dec.required(p + wire.SpecVersion); v != "" && v != wire.SpecVersionValue {
		dec.fail(p+wire.SpecVersion, "is not "+wire.SpecVersionValue)
	}
	d.ID, d.Source, d.Type = dec.required(p+wire.ID), dec.required(p+wire.Source), dec.required(p+wire.Type)
	d.AggregateID, _ = dec.take(p + wire.Subject)
	dec.take(p + wire.PartitionKey)
	d.CorrelationID, _ = dec.take(p + wire.CorrelationID)
	d.Tenant, _ = dec.take(p + wire.Tenant)
	d.Aggregate, _ = dec.take(p + wire.Aggregate)
	d.Version = int(dec.number(p+wire.Version, strconv.IntSize))
	d.AggregateVersion = dec.number(p+wire.AggregateVersion, 64)
	d.OccurredAt = time.Time{}
	if text, ok := dec.take(p + wire.Time); ok {
		at, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			dec.fail(p+wire.Time, "is no time of RFC 3339")
		}
		d.OccurredAt = at.UTC()
	}
}

func (dec *decoder) number(name string, bits int) int64 {
	text, ok := dec.take(name)
	if !ok {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, bits)
	if err != nil {
		dec.fail(name, "is no decimal number")
	}
	return n
}

// delivery takes what tells how the event was delivered.
func (dec *decoder) delivery(d *Delivery) {
	p := dec.prefix
	d.Route, _ = dec.take(p + wire.Route)
	if text, ok := dec.take(p + wire.Fence); ok {
		fence, err := strconv.ParseUint(text, 16, 64)
		if err != nil || len(text) != fenceDigits {
			dec.fail(p+wire.Fence, "is not of 16 hexadecimal digits")
		}
		d.Fence = fence
	}
	redrive, _ := dec.take(p + wire.Redrive)
	d.Redriven = redrive == wire.RedriveValue
}

const fenceDigits = 16

// own gathers what is left. A content-type becomes the field; what a consumer
// wrote when it gave the message up is not the event's.
func (dec *decoder) own(d *Delivery) {
	for i, h := range dec.raw.Headers {
		switch {
		case dec.used[i]:
		case isDeadHeader(h.Name):
			d.DeadLettered = true
		case strings.EqualFold(h.Name, wire.ContentType):
			if d.ContentType == "" || h.Name == wire.ContentType {
				d.ContentType = h.Value
			}
		default:
			if d.Headers == nil {
				d.Headers = make(map[string]string, len(dec.raw.Headers)-i)
			}
			d.Headers[h.Name] = h.Value
		}
	}
}
