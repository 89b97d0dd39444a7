package sqlite

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"

	"github.com/gooutbox/outbox/core"
)

// Config says how a Store keeps its outbox. The zero value is ready for use.
type Config struct {
	// Source names the log. Defaults to "/outbox/<name of the file>/outbox".
	Source string
	// MaxEventBytes is the largest core.Event.Size that Append and Enqueue
	// accept, at most LargestEventBytes. Defaults to core.DefaultMaxEventBytes.
	MaxEventBytes int
	// Codec seals payloads before they are stored and opens them when they are
	// read. Defaults to none: payloads are stored as they are.
	Codec core.Codec
	// HashKey, of 16 bytes or more, keys the hash by which a duplicate job of
	// another content is told. Defaults to none: the hash is a plain SHA-256
	// then, and jobs whose payload a Codec seals have none.
	HashKey []byte
	// IDNamespace makes the ids of jobs with a DedupKey differ from those of
	// other systems. Changing it lets jobs under a known key in again. Defaults
	// to Source.
	IDNamespace string
	// CompletedRetention is how long completed jobs are kept, and so for how
	// long a DedupKey holds. Defaults to core.DefaultCompletedRetention.
	CompletedRetention time.Duration
	// FailedRetention is the same for failed jobs that were enqueued; those of a
	// cursor are kept until a person decides. Defaults to
	// core.DefaultFailedRetention.
	FailedRetention time.Duration
	// Retain says which jobs that ended keep their payload. Defaults to
	// RetainFailed.
	Retain Retain
	// Propagator writes the trace context into the headers of an event that has
	// none. Defaults to W3C trace context.
	Propagator propagation.TextMapPropagator
	// BusyTimeout is how long a write waits for another process's. Defaults to
	// DefaultBusyTimeout.
	BusyTimeout time.Duration
	// PollInterval is how often a waiting reader or worker looks whether another
	// connection has committed something. Defaults to DefaultPollInterval, which
	// is also the most.
	PollInterval time.Duration
	// ReadWait is how long a read waits for an event before it returns
	// empty-handed. Defaults to 5 seconds.
	ReadWait time.Duration
	// MeterProvider takes the store's metrics. Defaults to the global one.
	MeterProvider metric.MeterProvider
}

// Retain says which jobs that ended keep their payload.
type Retain string

const (
	// RetainFailed keeps those of failed and unknown jobs, which can be retried.
	RetainFailed Retain = "failed"
	// RetainAll also keeps those of completed jobs, for as long as these are
	// kept.
	RetainAll Retain = "all"
	// RetainNone keeps none, except those of a cursor's failed events: a failed
	// job can't be retried then.
	RetainNone Retain = "none"
)

// Defaults and limits of Config.
const (
	DefaultBusyTimeout  = 10 * time.Second
	DefaultPollInterval = 50 * time.Millisecond
	DefaultReadWait     = 5 * time.Second
	// LargestEventBytes bounds Config.MaxEventBytes: 64 MiB.
	LargestEventBytes = 64 << 20

	minHashKeyBytes = 16
)

// withDefaults returns c with its zero fields set, and every problem at once.
func (c Config) withDefaults(source string) (Config, error) {
	var errs []error
	problem := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	c.Source = orDefault(c.Source, source)
	c.IDNamespace = orDefault(c.IDNamespace, c.Source)
	c.MaxEventBytes = orDefault(c.MaxEventBytes, core.DefaultMaxEventBytes)
	if c.MaxEventBytes < 0 || c.MaxEventBytes > LargestEventBytes {
		problem("MaxEventBytes is %d: want 1 to %d", c.MaxEventBytes, LargestEventBytes)
	}
	for _, d := range []struct {
		name  string
		value *time.Duration
		zero  time.Duration
	}{
		{"BusyTimeout", &c.BusyTimeout, DefaultBusyTimeout},
		{"PollInterval", &c.PollInterval, DefaultPollInterval},
		{"ReadWait", &c.ReadWait, DefaultReadWait},
		{"CompletedRetention", &c.CompletedRetention, core.DefaultCompletedRetention},
		{"FailedRetention", &c.FailedRetention, core.DefaultFailedRetention},
	} {
		if *d.value < 0 {
			problem("%s is negative", d.name)
		}
		*d.value = orDefault(*d.value, d.zero)
	}
	if c.PollInterval > DefaultPollInterval {
		problem("PollInterval is %s: want %s at most", c.PollInterval, DefaultPollInterval)
	}
	if c.Codec != nil && c.Codec.Name() == "" {
		problem("Codec has no name: readers couldn't tell what opens its payloads")
	}
	if c.HashKey != nil && len(c.HashKey) < minHashKeyBytes {
		problem("HashKey is %d bytes long: want %d or more", len(c.HashKey), minHashKeyBytes)
	}
	c.Retain = orDefault(c.Retain, RetainFailed)
	if !slices.Contains([]Retain{RetainFailed, RetainAll, RetainNone}, c.Retain) {
		problem("Retain is %q: want failed, all or none", c.Retain)
	}
	if c.Propagator == nil {
		c.Propagator = propagation.TraceContext{}
	}
	if c.MeterProvider == nil {
		c.MeterProvider = otel.GetMeterProvider()
	}
	if len(errs) > 0 {
		return c, fmt.Errorf("checking the configuration of the SQLite store: %w", errors.Join(errs...))
	}
	return c, nil
}

func orDefault[T comparable](value, zero T) T {
	var none T
	if value == none {
		return zero
	}
	return value
}
