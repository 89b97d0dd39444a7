// Package wire maps an event under lease to what travels: an ordered list of
// named headers beside the payload, which is sent as it is. All sinks share it,
// so that a consumer finds the same names on every broker; they differ only in
// the prefix of CloudEvents attributes. docs/wire.md is the contract for
// readers.
package wire

// Names of the CloudEvents attributes, without prefix. They are lower-case
// letters and digits, as the CloudEvents specification asks.
const (
	SpecVersion  = "specversion"
	ID           = "id"
	Source       = "source"
	Type         = "type"
	Subject      = "subject"
	Time         = "time"
	PartitionKey = "partitionkey"
	// CorrelationID is the attribute of the Correlation extension.
	CorrelationID = "correlationid"
	// Tenant, Aggregate, Version and AggregateVersion carry the event's fields
	// that CloudEvents has no attribute for.
	Tenant           = "outboxtenant"
	Aggregate        = "outboxaggregate"
	Version          = "outboxversion"
	AggregateVersion = "outboxaggversion"
	// Route, Fence and Redrive tell how the event was delivered. They have the
	// same names in every form, in the others without a prefix.
	Route   = "outboxroute"
	Fence   = "outboxfence"
	Redrive = "outboxredrive"
)

// Names of headers outside of CloudEvents.
const (
	// ContentType is a header of all forms but Debezium's.
	ContentType = "content-type"
	// DebeziumID and DebeziumType are the headers of the Debezium form.
	DebeziumID   = "id"
	DebeziumType = "eventType"
	// BareID and BareType are the headers of the bare form.
	BareID   = "outboxid"
	BareType = "outboxtype"
	// BareKey is the aggregate id in the bare form, on brokers whose messages
	// have no key of their own.
	BareKey = "outboxkey"
)

// SpecVersionValue is the version of CloudEvents that is written.
const SpecVersionValue = "1.0"

// Prefixes of CloudEvents attributes.
const (
	KafkaPrefix = "ce_"
	// AMQPPrefix is that of the CloudEvents AMQP binding. Some senders write
	// amqpPrefixJMS in its place, and readers accept both.
	AMQPPrefix    = "cloudEvents:"
	amqpPrefixJMS = "cloudEvents_"
	SQSPrefix     = "ce_"
)

// RedriveValue is the value of the Redrive header, which is absent otherwise.
const RedriveValue = "true"

// TimeLayout is RFC 3339 in UTC with up to three digits of a second: what
// stores keep.
const TimeLayout = "2006-01-02T15:04:05.999Z07:00"
