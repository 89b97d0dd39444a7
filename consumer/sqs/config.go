package sqs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/gooutbox/outbox/consumer"
	"github.com/gooutbox/outbox/internal/wire"
)

// Client is what is used of an *sqs.Client.
type Client interface {
	ReceiveMessage(ctx context.Context, in *sqs.ReceiveMessageInput, opts ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error)
	DeleteMessage(ctx context.Context, in *sqs.DeleteMessageInput, opts ...func(*sqs.Options)) (*sqs.DeleteMessageOutput, error)
	ChangeMessageVisibilityBatch(ctx context.Context, in *sqs.ChangeMessageVisibilityBatchInput, opts ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityBatchOutput, error)
	SendMessage(ctx context.Context, in *sqs.SendMessageInput, opts ...func(*sqs.Options)) (*sqs.SendMessageOutput, error)
}

// Config says what to consume, and where dead letters go.
type Config struct {
	// Client calls SQS. Required.
	Client Client
	// QueueURL is the queue's. Required.
	QueueURL string
	// Consumer is the name that dead letters are signed with. Required.
	Consumer string
	// DeadURL is the queue of dead letters, FIFO where the other one is.
	// Required. A redrive policy of the queue itself knows no reasons, and
	// counts deliveries that were given back; leave it out or set it high.
	DeadURL string
	// Form is what the sink was configured with. Defaults to finding it by the
	// attributes.
	Form consumer.Form
	// Retry says how often and how fast a message is tried.
	Retry consumer.Retry
	// Held is the most messages that are held at once. Defaults to 50.
	Held int
	// Lanes is how many messages of different keys are handled at once. Defaults
	// to 8.
	Lanes int
	// Visibility is how long the others don't see a message after the last sign
	// of its holder, who extends it at each third: 3 seconds to 12 hours, in
	// whole seconds. Defaults to 30 seconds.
	Visibility time.Duration
	// Hold is how long a message that fails is kept before it is given back to
	// the queue. SQS allows 12 hours. Defaults to 1 hour.
	Hold time.Duration
	// MaxDeliveries is how often the queue may give a message before it is taken
	// for one that ends the process, and becomes a dead letter. Each time it is
	// given back counts too. Defaults to 15.
	MaxDeliveries int
	// Drain is how long handlers may go on after ctx ended. Defaults to 30
	// seconds.
	Drain time.Duration
	// Logger takes failures. Defaults to slog.Default.
	Logger *slog.Logger
}

// Defaults of Config.
const (
	DefaultHeld          = 50
	DefaultLanes         = 8
	DefaultVisibility    = 30 * time.Second
	DefaultHold          = time.Hour
	DefaultMaxDeliveries = 15
)

// Limits of SQS.
const (
	minVisibility = 3 * time.Second
	maxVisibility = 12 * time.Hour
)

// Validate reports all problems at once, or nil.
func (c Config) Validate() error {
	var errs []error
	add := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s "+format, append([]any{field}, args...)...))
	}
	if c.Client == nil || c.QueueURL == "" {
		add("Client and QueueURL", "are required")
	}
	if c.Consumer == "" {
		add("Consumer", "is empty: dead letters are signed with it")
	}
	if c.DeadURL == "" {
		add("DeadURL", "is empty: what can't be handled must lie somewhere")
	}
	if v := c.Visibility; v != 0 && (v < minVisibility || v > maxVisibility || v%time.Second != 0) {
		add("Visibility", "is %v: use whole seconds from %v to %v", v, minVisibility, maxVisibility)
	}
	if c.Hold > maxVisibility-time.Hour {
		add("Hold", "is %v: at most %v", c.Hold, maxVisibility-time.Hour)
	}
	if c.Form != "" {
		if err := c.Form.Validate(); err != nil {
			add("Form", "can't be used: %w", err)
		}
	}
	if c.Held < 0 || c.Lanes < 0 || c.Hold < 0 || c.MaxDeliveries < 0 || c.Drain < 0 {
		add("Held, Lanes, Hold, MaxDeliveries and Drain", "must not be negative")
	}
	return errors.Join(append(errs, c.Retry.Validate())...)
}

func (c Config) withDefaults() Config {
	if c.Held == 0 {
		c.Held = DefaultHeld
	}
	if c.Lanes == 0 {
		c.Lanes = DefaultLanes
	}
	if c.Visibility == 0 {
		c.Visibility = DefaultVisibility
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

var prefixes = []string{wire.SQSPrefix}
