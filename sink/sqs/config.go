package sqs

import (
	"errors"
	"fmt"
	"time"

	"github.com/gooutbox/outbox/internal/wire"
)

// Config says where a Sink delivers to, and how. Only Queue is required.
// Region, endpoint and credentials are the AWS configuration's, see New.
type Config struct {
	// Queue is a text/template for the name or the URL of the queue. It may
	// use .Type, .Aggregate, .Tenant, .Version and .Route, the function
	// required, as in {{ required "Tenant" .Tenant }}, which refuses an event
	// whose field is empty, and replace, as in {{ replace "." "-" .Type }}:
	// names have no dots. A queue is a FIFO queue if its name ends in .fifo.
	// A name is looked up in the account of the credentials; a queue of another
	// account needs its URL. Required. Defaults to nothing.
	Queue string
	// FIFO rejects events whose queue is no FIFO queue, so that a slip in the
	// name doesn't cost the order. Defaults to false: the name decides.
	FIFO bool
	// Form is the shape of the messages. Defaults to CloudEvents.
	Form Form
	// Source takes the place of the log's name in the CloudEvents source
	// attribute. Defaults to the name that the log gives itself.
	Source string
	// Binary says what becomes of a payload that is no text that SQS takes.
	// Defaults to BinaryBase64.
	Binary Binary
	// RequestTimeout bounds each request, its connection included. At least 100
	// milliseconds. Defaults to 10 seconds.
	RequestTimeout time.Duration
	// Concurrency is how many requests of one call of Deliver run at once.
	// Defaults to 4.
	Concurrency int
}

// Form is the shape in which events travel.
type Form = wire.Form

// The forms, see docs/wire.md.
const (
	// CloudEvents is the attributes of CloudEvents beside the payload.
	CloudEvents = wire.CloudEvents
	// Debezium is what Debezium's outbox event router emits.
	Debezium = wire.Debezium
	// Bare is the payload with a few attributes.
	Bare = wire.Bare
)

// Binary says what becomes of a payload with bytes or characters that SQS
// doesn't take. SQS takes text of the characters of XML 1.0 only.
type Binary string

// What becomes of it. The zero value is BinaryBase64.
const (
	// BinaryBase64 sends it in base64, marked by the attribute outboxbody.
	BinaryBase64 Binary = "base64"
	// BinaryReject rejects the event, for consumers that don't look at the mark.
	BinaryReject Binary = "reject"
)

// Defaults.
const (
	DefaultRequestTimeout = 10 * time.Second
	DefaultConcurrency    = 4
)

const minRequestTimeout = 100 * time.Millisecond

// Validate reports all problems at once, or nil.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	add := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s %s", field, fmt.Sprintf(format, args...)))
	}
	if c.Queue == "" {
		add("Queue", "is empty: name the queue, or give its URL")
	} else if names, err := newQueues(c.Queue); err != nil {
		add("Queue", "%v", err)
	} else if fixed := names.Fixed(); c.FIFO && fixed != "" && !isFIFO(fixed) {
		add("Queue", "is no FIFO queue, which FIFO asks for: its name doesn't end in %s", fifoSuffix)
	}
	if err := c.Form.Validate(); err != nil {
		add("Form", "is no form: %v", err)
	}
	if c.Binary != BinaryBase64 && c.Binary != BinaryReject {
		add("Binary", "is %q: use %s or %s", c.Binary, BinaryBase64, BinaryReject)
	}
	if c.RequestTimeout < minRequestTimeout {
		add("RequestTimeout", "is %v: at least %v", c.RequestTimeout, minRequestTimeout)
	}
	if c.Concurrency < 0 {
		add("Concurrency", "is negative: use 0 for the default, %d", DefaultConcurrency)
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	c.Form = c.Form.OrDefault()
	if c.Binary == "" {
		c.Binary = BinaryBase64
	}
	if c.RequestTimeout == 0 {
		c.RequestTimeout = DefaultRequestTimeout
	}
	if c.Concurrency == 0 {
		c.Concurrency = DefaultConcurrency
	}
	return c
}
