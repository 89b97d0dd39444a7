package wire

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/gooutbox/outbox/core"
)

// Header is one named value. Both are UTF-8.
type Header struct {
	Name, Value string
}

// Encoder makes headers in one form. It may be used by several goroutines at
// once.
type Encoder struct {
	form   Form
	prefix string
	source string
	// names of the CloudEvents attributes with their prefix, made once.
	names attributeNames
	// fence is the last one that was written as text: it changes only when a
	// cursor changes hands.
	fence atomic.Pointer[fenceText]
}

type attributeNames struct {
	specVersion, id, source, typ, subject, time, partitionKey, correlationID string
	tenant, aggregate, version, aggregateVersion, route, fence, redrive      string
}

type fenceText struct {
	fence uint64
	text  string
}

// NewEncoder makes an encoder. prefix goes before the names of CloudEvents
// attributes, such as KafkaPrefix. source, if not empty, takes the place of
// Lease.Source.
func NewEncoder(form Form, prefix, source string) *Encoder {
	return &Encoder{form: form.OrDefault(), prefix: prefix, source: source, names: attributeNames{
		specVersion: prefix + SpecVersion, id: prefix + ID, source: prefix + Source, typ: prefix + Type,
		subject: prefix + Subject, time: prefix + Time, partitionKey: prefix + PartitionKey,
		correlationID: prefix + CorrelationID, tenant: prefix + Tenant, aggregate: prefix + Aggregate,
		version: prefix + Version, aggregateVersion: prefix + AggregateVersion,
		route: prefix + Route, fence: prefix + Fence, redrive: prefix + Redrive,
	}}
}

// Append adds the headers of l to dst: those of the form first, in a fixed
// order, then the event's own, sorted by name. The body is l.Event.Payload. An
// error is a *core.FieldError: the event can't travel in this form. dst then
// comes back as it was.
func (e *Encoder) Append(dst []Header, l *core.Lease) ([]Header, error) {
	out, err := e.appendForm(dst, l)
	if err != nil {
		return dst, err
	}
	if out, err = e.appendOwn(out, &l.Event); err != nil {
		return dst, err
	}
	return out, nil
}

func (e *Encoder) appendForm(dst []Header, l *core.Lease) ([]Header, error) {
	if l.Event.ID == "" {
		return dst, &core.FieldError{Field: "ID", Problem: "is empty: consumers drop repeats by it"}
	}
	if l.Event.Type == "" {
		return dst, &core.FieldError{Field: "Type", Problem: "is empty: it says what happened"}
	}
	switch e.form {
	case Debezium:
		dst = append(dst, Header{DebeziumID, l.Event.ID}, Header{DebeziumType, l.Event.Type})
		return e.appendDelivery(dst, l, Route, Fence, Redrive), nil
	case Bare:
		dst = append(dst, Header{BareID, l.Event.ID}, Header{BareType, l.Event.Type})
		if e.keyed() {
			dst = appendText(dst, BareKey, l.Event.AggregateID)
		}
		dst = e.appendDelivery(dst, l, Route, Fence, Redrive)
		return append(dst, Header{ContentType, contentType(&l.Event)}), nil
	default:
		return e.appendAttributes(dst, l)
	}
}

func (e *Encoder) appendAttributes(dst []Header, l *core.Lease) ([]Header, error) {
	source := e.source
	if source == "" {
		source = l.Source
	}
	if source == "" {
		return dst, &core.FieldError{Field: "Source", Problem: "is empty: the log has no name, configure the sink's source"}
	}
	n, ev := &e.names, &l.Event
	dst = append(dst,
		Header{n.specVersion, SpecVersionValue}, Header{n.id, ev.ID},
		Header{n.source, source}, Header{n.typ, ev.Type})
	dst = appendText(dst, n.subject, ev.AggregateID)
	if !ev.OccurredAt.IsZero() {
		dst = append(dst, Header{n.time, ev.OccurredAt.UTC().Format(TimeLayout)})
	}
	dst = appendText(dst, n.partitionKey, ev.AggregateID)
	dst = appendText(dst, n.correlationID, ev.CorrelationID)
	dst = appendText(dst, n.tenant, ev.Tenant)
	dst = appendText(dst, n.aggregate, ev.Aggregate)
	if ev.Version != 0 {
		dst = append(dst, Header{n.version, strconv.Itoa(ev.Version)})
	}
	if ev.AggregateVersion != 0 {
		dst = append(dst, Header{n.aggregateVersion, strconv.FormatInt(ev.AggregateVersion, 10)})
	}
	dst = e.appendDelivery(dst, l, n.route, n.fence, n.redrive)
	return append(dst, Header{ContentType, contentType(ev)}), nil
}

func (e *Encoder) appendDelivery(dst []Header, l *core.Lease, route, fence, redrive string) []Header {
	dst = appendText(dst, route, l.Route)
	if l.Fence != 0 {
		dst = append(dst, Header{fence, e.fenceText(l.Fence)})
	}
	if l.Redriven {
		dst = append(dst, Header{redrive, RedriveValue})
	}
	return dst
}

func (e *Encoder) fenceText(fence uint64) string {
	if last := e.fence.Load(); last != nil && last.fence == fence {
		return last.text
	}
	text := fmt.Sprintf("%016x", fence)
	e.fence.Store(&fenceText{fence, text})
	return text
}

// appendOwn adds the event's headers. A content-type among them has been used
// where the event names none itself.
func (e *Encoder) appendOwn(dst []Header, ev *core.Event) ([]Header, error) {
	first := len(dst)
	for name, value := range ev.Headers {
		switch {
		case strings.EqualFold(name, ContentType) && e.form != Debezium:
			continue
		case e.reserved(name):
			return dst, &core.FieldError{
				Field:   fmt.Sprintf("Headers[%.64q]", name),
				Problem: "has a name that the " + string(e.form) + " form uses itself",
			}
		}
		dst = append(dst, Header{name, value})
	}
	slices.SortFunc(dst[first:], func(a, b Header) int { return strings.Compare(a.Name, b.Name) })
	return dst, nil
}

// reserved tells whether a consumer could take a header of this name for one
// that the form itself wrote.
func (e *Encoder) reserved(name string) bool {
	switch e.form {
	case Debezium:
		return equalAny(name, DebeziumID, DebeziumType, Route, Fence, Redrive)
	case Bare:
		return equalAny(name, BareID, BareType, Route, Fence, Redrive) || e.keyed() && strings.EqualFold(name, BareKey)
	default:
		return begins(name, "ce_") || begins(name, "ce-") || begins(name, e.prefix) ||
			e.prefix == AMQPPrefix && begins(name, amqpPrefixJMS)
	}
}

// keyed tells whether a bare message names its key in a header.
func (e *Encoder) keyed() bool { return e.prefix == AMQPPrefix }

// begins tells whether name starts with a prefix, whatever its case. No name
// starts with an empty one.
func begins(name, prefix string) bool {
	return prefix != "" && len(name) >= len(prefix) && strings.EqualFold(name[:len(prefix)], prefix)
}

func equalAny(name string, others ...string) bool {
	return slices.ContainsFunc(others, func(o string) bool { return strings.EqualFold(name, o) })
}

func appendText(dst []Header, name, value string) []Header {
	if value == "" {
		return dst
	}
	return append(dst, Header{name, value})
}

// contentType is the event's field, else its header of that name, else the
// default.
func contentType(ev *core.Event) string {
	if ev.ContentType != "" {
		return ev.ContentType
	}
	for name, value := range ev.Headers {
		if strings.EqualFold(name, ContentType) && value != "" {
			return value
		}
	}
	return core.DefaultContentType
}
