package amqp

import (
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"github.com/gooutbox/outbox/internal/wire"
)

// Config says where a Sink delivers to, and how. Only URLs is required.
type Config struct {
	// URLs are addresses of the brokers of one cluster, as
	// amqp://user:password@host:5672/vhost, or amqps:// for TLS. They are tried
	// in turn, beginning with the one that worked last. Host, port, user and
	// virtual host default to localhost, 5672 (5671 with TLS), guest:guest and
	// "/". Parameters after a question mark are refused: what they would say is
	// said by the fields below. At least one.
	URLs []string
	// Exchange is a text/template for the name of the exchange. It may use
	// .Type, .Aggregate, .AggregateID, .Tenant, .Version and .Route, and the
	// function required, as in {{ required "Tenant" .Tenant }}, which refuses
	// an event whose field is empty. Defaults to the default exchange, which
	// brings a message to the queue that its routing key names.
	Exchange string
	// RoutingKey is a text/template for the routing key, with the same fields.
	// Defaults to "{{ .Type }}".
	RoutingKey string
	// Form is the shape of the messages. Defaults to CloudEvents.
	Form Form
	// Source takes the place of the log's name in the CloudEvents source
	// attribute. Defaults to the name that the log gives itself.
	Source string
	// Transient marks messages as not persistent: queues may lose them when the
	// broker restarts, although it has confirmed them. Defaults to false.
	Transient bool
	// Topology is declared on each new connection, before anything is sent.
	// Defaults to nothing.
	Topology Topology
	// TLS configures connections to amqps:// addresses. Defaults to the
	// system's roots.
	TLS *tls.Config
	// External logs in by the certificate that TLS holds (SASL EXTERNAL), and
	// not by user and password. Needs amqps:// addresses. Defaults to false.
	External bool
	// ConnectionName names this program in the broker's lists. Defaults to
	// "outbox".
	ConnectionName string
	// Heartbeat is the interval at which both sides show that they are alive, in
	// whole seconds; a connection that is silent for one and a half of it is
	// given up. Defaults to 10 seconds.
	Heartbeat time.Duration
	// Timeout bounds connecting, and each question to the broker. It doesn't
	// bound the wait for confirmations: that is what the context of Deliver is
	// for. At least 100 milliseconds. Defaults to 10 seconds.
	Timeout time.Duration
	// MaxMessageBytes rejects events of more bytes (core.Event.Size) without
	// asking the broker. Defaults to 0: the broker's max_message_size decides,
	// which counts the body. The first event above it costs a channel, and what
	// was under way there is sent again; then the limit is known.
	MaxMessageBytes int
}

// Form is the shape in which events travel.
type Form = wire.Form

// The forms, see docs/wire.md.
const (
	// CloudEvents is the binary content mode of CloudEvents 1.0.
	CloudEvents = wire.CloudEvents
	// Bare is the payload with a few headers.
	Bare = wire.Bare
)

// Defaults.
const (
	DefaultRoutingKey     = "{{ .Type }}"
	DefaultConnectionName = "outbox"
	DefaultHeartbeat      = 10 * time.Second
	DefaultTimeout        = 10 * time.Second
)

const minTimeout = 100 * time.Millisecond

// String hides the passwords in the addresses.
func (c Config) String() string {
	return fmt.Sprintf("amqp.Config{URLs: %v, Exchange: %q, RoutingKey: %q}", hidden(c.URLs), c.Exchange, c.RoutingKey)
}

// GoString hides them too.
func (c Config) GoString() string { return c.String() }

// Validate reports all problems at once, or nil.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	add := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s %s", field, fmt.Sprintf(format, args...)))
	}
	if len(c.URLs) == 0 {
		add("URLs", "is empty: name at least one broker as amqp://user:password@host:5672/vhost")
	}
	for i, u := range c.URLs {
		a, err := parseAddress(u)
		switch {
		case err != nil:
			add("URLs", "entry %d %v", i+1, err)
		case c.External && !a.tls:
			add("External", "needs amqps:// addresses: the certificate of TLS says who logs in")
		}
	}
	if f := c.Form; f != CloudEvents && f != Bare {
		add("Form", "is %q: use %s or %s", f, CloudEvents, Bare)
	}
	if _, err := newExchanges(c.Exchange); err != nil {
		add("Exchange", "%v", err)
	}
	if _, err := newRoutingKeys(c.RoutingKey); err != nil {
		add("RoutingKey", "%v", err)
	}
	if c.Heartbeat < time.Second || c.Heartbeat > 300*time.Second || c.Heartbeat%time.Second != 0 {
		add("Heartbeat", "is %v: use whole seconds from 1s to 300s", c.Heartbeat)
	}
	if c.Timeout < minTimeout {
		add("Timeout", "is %v: at least %v", c.Timeout, minTimeout)
	}
	if c.MaxMessageBytes < 0 {
		add("MaxMessageBytes", "is negative: use 0 to let the broker decide")
	}
	if len(c.ConnectionName) > maxShort || hasControl(c.ConnectionName) {
		add("ConnectionName", "is longer than %d bytes or contains a control character", maxShort)
	}
	for _, problem := range c.Topology.problems() {
		add("Topology", "%s", problem)
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	c.Form = c.Form.OrDefault()
	if c.RoutingKey == "" {
		c.RoutingKey = DefaultRoutingKey
	}
	if c.ConnectionName == "" {
		c.ConnectionName = DefaultConnectionName
	}
	if c.Heartbeat == 0 {
		c.Heartbeat = DefaultHeartbeat
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	return c
}
