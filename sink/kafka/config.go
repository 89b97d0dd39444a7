package kafka

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/gooutbox/outbox/internal/wire"
)

// Config says where a Sink delivers to, and how. Only Brokers is required.
type Config struct {
	// Brokers are host:port addresses of some brokers of the cluster; the
	// others are learnt from them. At least one.
	Brokers []string
	// Topic is a text/template for the name of the topic. It may use .Type,
	// .Aggregate, .Tenant, .Version and .Route, and the function required,
	// as in {{ required "Tenant" .Tenant }}, which refuses an event whose
	// field is empty. Defaults to "{{ .Type }}", in the Debezium form to
	// `outbox.event.{{ required "Aggregate" .Aggregate }}`.
	//
	// Events of one key that go to several topics are sent one topic after the
	// other, which costs a round trip for each change of topic within a key:
	// prefer one topic for an aggregate.
	Topic string
	// Form is the shape of the messages. Defaults to CloudEvents.
	Form Form
	// Source takes the place of the log's name in the CloudEvents source
	// attribute. Defaults to the name that the log gives itself.
	Source string
	// TLS, where not nil, encrypts all connections. Defaults to none.
	TLS *tls.Config
	// SASL, where not nil, authenticates all connections. Defaults to none.
	SASL *SASL
	// Acks says who has to acknowledge a message. Defaults to AcksAll.
	Acks Acks
	// Compression of the record sets. Defaults to CompressionNone.
	Compression Compression
	// ClientID names this program to the brokers, for their logs and quotas.
	// Defaults to "outbox".
	ClientID string
	// RequestTimeout bounds each request, its connection included. The broker
	// is told a little less, so that its own answer comes first. At least 100
	// milliseconds. Defaults to 10 seconds.
	RequestTimeout time.Duration
	// MaxMessageBytes rejects larger messages without asking the broker: what
	// Kafka counts, before compression, with key, headers and 61 bytes for the
	// record set. Defaults to 0: the topic's max.message.bytes decides, where
	// this program may read it and compresses nothing, else the broker.
	MaxMessageBytes int
	// CreateTopics lets the brokers create a topic that doesn't exist, where
	// their auto.create.topics.enable allows it. The call then waits up to 5
	// seconds for the topic, and after it did so in vain no call waits for a
	// minute. Defaults to false: such events are refused for
	// now, and the error names the topic.
	CreateTopics bool
}

// Form is the shape in which events travel.
type Form = wire.Form

// The forms, see docs/wire.md.
const (
	// CloudEvents is the binary content mode of CloudEvents 1.0.
	CloudEvents = wire.CloudEvents
	// Debezium is what Debezium's outbox event router emits.
	Debezium = wire.Debezium
	// Bare is the payload with a few headers.
	Bare = wire.Bare
)

// Acks says who has to acknowledge a message. Sending without any
// acknowledgement is not offered: it loses messages silently.
type Acks string

// The acknowledgements. The zero value is AcksAll.
const (
	// AcksAll waits for all in-sync replicas.
	AcksAll Acks = "all"
	// AcksLeader waits for the partition's leader alone: what it
	// acknowledged is lost when it dies before others copied it.
	AcksLeader Acks = "leader"
)

// Compression of record sets.
type Compression string

// The compressions. The zero value is CompressionNone.
const (
	CompressionNone   Compression = "none"
	CompressionGzip   Compression = "gzip"
	CompressionSnappy Compression = "snappy"
	CompressionLZ4    Compression = "lz4"
	CompressionZstd   Compression = "zstd"
)

// Mechanism is a way to authenticate.
type Mechanism string

// The mechanisms.
const (
	// Plain sends the password as it is: use it with TLS only.
	Plain       Mechanism = "plain"
	ScramSHA256 Mechanism = "scram-sha-256"
	ScramSHA512 Mechanism = "scram-sha-512"
)

// SASL is who the sink is to the brokers. Its String hides the password.
type SASL struct {
	Mechanism          Mechanism
	Username, Password string
}

func (s SASL) String() string { return fmt.Sprintf("%s as %s", s.Mechanism, s.Username) }

// GoString hides the password too.
func (s SASL) GoString() string { return "kafka.SASL{" + s.String() + "}" }

// Defaults.
const (
	DefaultTopic          = "{{ .Type }}"
	DefaultDebeziumTopic  = `outbox.event.{{ required "Aggregate" .Aggregate }}`
	DefaultClientID       = "outbox"
	DefaultRequestTimeout = 10 * time.Second
)

const minRequestTimeout = 100 * time.Millisecond

// Validate reports all problems at once, or nil.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	add := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s %s", field, fmt.Sprintf(format, args...)))
	}
	if len(c.Brokers) == 0 {
		add("Brokers", "is empty: name at least one broker as host:port")
	}
	for _, b := range c.Brokers {
		if host, port, err := net.SplitHostPort(b); err != nil || host == "" || port == "" {
			add("Brokers", "has %q, which is no host:port", b)
		}
	}
	if err := c.Form.Validate(); err != nil {
		add("Form", "is no form: %v", err)
	} else if _, err := newTopics(c.Topic); err != nil {
		add("Topic", "%v", err)
	}
	if c.Acks != AcksAll && c.Acks != AcksLeader {
		add("Acks", "is %q: use %s or %s", c.Acks, AcksAll, AcksLeader)
	}
	if _, ok := compressions[c.Compression]; !ok {
		add("Compression", "is %q: use none, gzip, snappy, lz4 or zstd", c.Compression)
	}
	if c.SASL != nil {
		if _, err := c.SASL.mechanism(); err != nil {
			add("SASL", "%v", err)
		}
	}
	if c.RequestTimeout < minRequestTimeout {
		add("RequestTimeout", "is %v: at least %v", c.RequestTimeout, minRequestTimeout)
	}
	if c.MaxMessageBytes < 0 {
		add("MaxMessageBytes", "is negative: use 0 to let the broker decide")
	}
	if strings.ContainsFunc(c.ClientID, func(r rune) bool { return r < 0x20 || r == 0x7f }) {
		add("ClientID", "contains a control character")
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	c.Form = c.Form.OrDefault()
	if c.Topic == "" {
		c.Topic = DefaultTopic
		if c.Form == Debezium {
			c.Topic = DefaultDebeziumTopic
		}
	}
	if c.Acks == "" {
		c.Acks = AcksAll
	}
	if c.Compression == "" {
		c.Compression = CompressionNone
	}
	if c.ClientID == "" {
		c.ClientID = DefaultClientID
	}
	if c.RequestTimeout == 0 {
		c.RequestTimeout = DefaultRequestTimeout
	}
	return c
}
