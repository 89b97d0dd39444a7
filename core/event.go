package core

import "time"

// Event is one fact that a program publishes. It is written in the transaction
// of the change that it tells, and never changes afterwards.
//
// AggregateID is the key: events with the same AggregateID stay in order, and
// brokers with partitions or groups use it to place the event.
type Event struct {
	// ID is unique in its log. Left empty, the store assigns a UUIDv7 when it
	// appends the event. Consumers drop repeats by it.
	ID string
	// Aggregate names the kind of thing that the event is about, such as
	// "order". Optional.
	Aggregate string
	// AggregateID is the key of the event, such as an order number. Required,
	// at most MaxKeyBytes.
	AggregateID string
	// Type says what happened, such as "order.placed". Required, at most
	// MaxNameBytes.
	Type string
	// Version is the version of the payload's schema. 0 means not stated.
	Version int
	// AggregateVersion counts the changes of the aggregate, for consumers that
	// keep only the newest. 0 means not stated.
	AggregateVersion int64
	// Payload is the body, in the encoding that ContentType names.
	Payload []byte
	// ContentType is the media type of Payload. Defaults to
	// "application/json" when a sink has to name one.
	ContentType string
	// Headers travel with the event. Names are HTTP field names (RFC 9110
	// section 5.1), compared without regard to case; "ce_" and "ce-" prefixes
	// are reserved for CloudEvents attributes.
	Headers map[string]string
	// Tenant names whose event this is, where one system serves several.
	Tenant string
	// OccurredAt is when it happened, by the producer's clock. Left zero, the
	// store sets it when it appends the event. Stores keep milliseconds.
	OccurredAt time.Time
	// CorrelationID ties together the events of one business process.
	CorrelationID string
}

// DefaultContentType is what an event without a ContentType is taken to hold.
const DefaultContentType = "application/json"

// Size is the number of bytes that the event's own strings, headers and payload
// take: what limits are counted in. Encodings add their overhead to it.
func (e *Event) Size() int {
	n := len(e.ID) + len(e.Aggregate) + len(e.AggregateID) + len(e.Type) + len(e.Payload) +
		len(e.ContentType) + len(e.Tenant) + len(e.CorrelationID)
	for k, v := range e.Headers {
		n += len(k) + len(v)
	}
	return n
}
