package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/gooutbox/outbox/consumer"
	"github.com/gooutbox/outbox/internal/wire"
)

// Reader is what is used of a *kafka.Reader, which has a GroupID.
type Reader interface {
	FetchMessage(ctx context.Context) (kafka.Message, error)
	CommitMessages(ctx context.Context, messages ...kafka.Message) error
}

// Config says what to consume, and where dead letters go.
type Config struct {
	// Reader gives the messages. It is not closed. Required.
	Reader Reader
	// Consumer is the name that dead letters are signed with. Required.
	Consumer string
	// Dead is where messages go that can't be handled. Required.
	Dead DeadTopic
	// Form is what the sink was configured with. Defaults to finding it by the
	// headers.
	Form consumer.Form
	// Retry says how often and how fast a message is tried.
	Retry consumer.Retry
	// Buffer is how many messages of a partition may wait for the one that is
	// handled; beyond it the reader waits, and with it the other partitions.
	// Defaults to 1000.
	Buffer int
	// Batch is the most messages of a call of RunBatch. It takes those that wait
	// in the buffer, and doesn't wait for more. Defaults to 100.
	Batch int
	// Drain is how long handlers may go on after ctx ended. Defaults to 30
	// seconds.
	Drain time.Duration
	// Logger takes failures. Defaults to slog.Default.
	Logger *slog.Logger
}

// DeadTopic is the topic of dead letters. It should take messages 4 KiB larger
// than the topics that are read.
type DeadTopic struct {
	// Brokers are addresses as host:port, and Topic is the topic's name. Both are
	// required, and the topic must exist.
	Brokers []string
	Topic   string
	// Transport connects, with TLS and SASL where it says so. Defaults to
	// kafka.DefaultTransport.
	Transport kafka.RoundTripper
}

// Defaults of Config.
const (
	DefaultBuffer = 1000
	DefaultBatch  = 100
)

// Validate reports all problems at once, or nil.
func (c Config) Validate() error {
	var errs []error
	add := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s "+format, append([]any{field}, args...)...))
	}
	if c.Reader == nil {
		add("Reader", "is nil: pass a *kafka.Reader with a GroupID")
	}
	if c.Consumer == "" {
		add("Consumer", "is empty: dead letters are signed with it")
	}
	if len(c.Dead.Brokers) == 0 || c.Dead.Topic == "" {
		add("Dead", "needs Brokers and Topic: what can't be handled must lie somewhere, or it stops its partition")
	}
	if c.Form != "" {
		if err := c.Form.Validate(); err != nil {
			add("Form", "can't be used: %w", err)
		}
	}
	if c.Buffer < 0 || c.Batch < 0 || c.Drain < 0 {
		add("Buffer, Batch and Drain", "must not be negative")
	}
	return errors.Join(append(errs, c.Retry.Validate())...)
}

func (c Config) withDefaults() Config {
	if c.Buffer == 0 {
		c.Buffer = DefaultBuffer
	}
	if c.Batch == 0 {
		c.Batch = DefaultBatch
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

// Decode turns a message back into the event that sink/kafka sent. form "" finds
// the form by the headers. The error is a *consumer.DecodeError.
func Decode(m kafka.Message, form consumer.Form) (consumer.Delivery, error) {
	return consumer.Decode(&consumer.Raw{
		Headers: headersOf(m), Prefixes: prefixes, Key: string(m.Key), Body: m.Value,
	}, form)
}

var prefixes = []string{wire.KafkaPrefix}

func headersOf(m kafka.Message) []consumer.Header {
	headers := make([]consumer.Header, len(m.Headers))
	for i, h := range m.Headers {
		headers[i] = consumer.Header{Name: h.Key, Value: string(h.Value)}
	}
	return headers
}
