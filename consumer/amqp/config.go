package amqp

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/gooutbox/outbox/consumer"
	"github.com/gooutbox/outbox/internal/wire"
)

// Config says what to consume, and where dead letters go.
type Config struct {
	// Dial makes a connection, such as by amqp091.Dial; Run closes it. Required.
	Dial func() (*amqp091.Connection, error)
	// Queue exists already. Required.
	Queue string
	// Consumer is the name that dead letters are signed with, and that the broker
	// shows. Required.
	Consumer string
	// Dead is where messages go that can't be handled. Required.
	Dead DeadExchange
	// Form is what the sink was configured with. Defaults to finding it by the
	// headers.
	Form consumer.Form
	// Retry says how often and how fast a message is tried.
	Retry consumer.Retry
	// Prefetch is how many messages the broker gives without an acknowledgement.
	// Defaults to 50.
	Prefetch int
	// Lanes is how many messages of different keys are handled at once. Defaults
	// to 8.
	Lanes int
	// Hold is how long a message that fails is kept before it is given back to
	// the queue. It must be shorter than the broker's consumer_timeout (30
	// minutes), which ends the channel. Defaults to 20 minutes.
	Hold time.Duration
	// MaxDeliveries is how often a queue that counts (a quorum queue) may give a
	// message before it is taken for one that ends the process, and becomes a
	// dead letter. Each time it is given back counts too. Keep it below the
	// queue's delivery-limit. Defaults to 15.
	MaxDeliveries int
	// Drain is how long handlers may go on after ctx ended. Defaults to 30
	// seconds.
	Drain time.Duration
	// Logger takes failures. Defaults to slog.Default.
	Logger *slog.Logger
}

// DeadExchange takes dead letters: confirmed, and only where a queue takes them.
type DeadExchange struct {
	// Exchange is its name. Defaults to the default exchange, which brings a
	// message to the queue that RoutingKey names.
	Exchange string
	// RoutingKey of the dead letters. Defaults to that of each message, which
	// needs an Exchange.
	RoutingKey string
}

// Defaults of Config.
const (
	DefaultPrefetch      = 50
	DefaultLanes         = 8
	DefaultHold          = 20 * time.Minute
	DefaultMaxDeliveries = 15
)

// Validate reports all problems at once, or nil.
func (c Config) Validate() error {
	var errs []error
	add := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s "+format, append([]any{field}, args...)...))
	}
	if c.Dial == nil {
		add("Dial", "is nil: pass a function that calls amqp091.Dial")
	}
	if c.Queue == "" {
		add("Queue", "is empty")
	}
	if c.Consumer == "" {
		add("Consumer", "is empty: dead letters are signed with it")
	}
	if c.Dead == (DeadExchange{}) {
		add("Dead", "needs an Exchange, or a RoutingKey that names a queue: what can't be handled must lie somewhere")
	}
	if c.Form != "" {
		if err := c.Form.Validate(); err != nil {
			add("Form", "can't be used: %w", err)
		}
	}
	if c.Prefetch < 0 || c.Lanes < 0 || c.Hold < 0 || c.MaxDeliveries < 0 || c.Drain < 0 {
		add("Prefetch, Lanes, Hold, MaxDeliveries and Drain", "must not be negative")
	}
	return errors.Join(append(errs, c.Retry.Validate())...)
}

func (c Config) withDefaults() Config {
	if c.Prefetch == 0 {
		c.Prefetch = DefaultPrefetch
	}
	if c.Lanes == 0 {
		c.Lanes = DefaultLanes
	}
	if c.Hold == 0 {
		c.Hold = DefaultHold
	}
	if c.MaxDeliveries == 0 {
		c.MaxDeliveries = DefaultMaxDeliveries
	}
	if c.Drain == 0 {
		c.Drain = consumer.DefaultDrain
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	c.Retry = c.Retry.OrDefaults()
	return c
}

// prefixes of CloudEvents attributes: that of the AMQP binding, and the one that
// senders use whose names can't hold a colon.
var prefixes = []string{wire.AMQPPrefix, "cloudEvents_"}
