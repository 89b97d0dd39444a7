package mongo

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"

	"github.com/gooutbox/outbox/core"
)

// Config says how a Store keeps its log. The zero value is ready for use.
type Config struct {
	// Collection is the log's name. The store's other collections have it as
	// their prefix: <log>_cursors, <log>_jobs, <log>_keys, <log>_meta. Defaults
	// to "outbox".
	Collection string
	// Fields names the log's fields where an existing collection calls them
	// otherwise. Defaults to the documented layout.
	Fields Fields
	// MaxEventBytes is the largest core.Event.Size that Append accepts, at most
	// LargestEventBytes. Defaults to 1 MiB.
	MaxEventBytes int
	// AllowNoTransaction lets Append write outside a transaction, where the
	// event may exist although the change that it tells does not. Defaults to
	// false: Append then returns core.ErrNoTransaction.
	AllowNoTransaction bool
	// SerializeKeys makes Append write a document per key, so that transactions
	// of one key that share no other document conflict, and commit in the order
	// of their events. It costs one round trip an Append. Defaults to false.
	SerializeKeys bool
	// Codec seals payloads before they are stored and opens them when they are
	// read. Defaults to none: payloads are stored as they are.
	Codec core.Codec
	// HashKey, of 16 bytes or more, keys the hash by which a duplicate job of
	// another content is told. Defaults to none: the hash is a plain SHA-256
	// then, and jobs whose payload a Codec seals have none.
	HashKey []byte
	// IDNamespace makes the ids of jobs with a DedupKey differ from those of
	// other systems. Changing it lets jobs under a known key in again. Defaults
	// to Store.Source.
	IDNamespace string
	// CompletedRetention is how long completed jobs are kept, and so for how
	// long a DedupKey holds. Those that are kept when it is raised stay longer;
	// when it is lowered they stay as long as they were told. Defaults to
	// core.DefaultCompletedRetention.
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
	// Poll reads by queries and marks instead of the change stream, for a
	// server whose change streams can't be used. Only one cursor may then exist;
	// one that starts from now marks as published what is there.
	// Defaults to false on a replica set; a standalone is always polled.
	Poll bool
	// PollInterval is how long a read that found nothing waits before the next
	// query where the log is polled. Defaults to 1 second.
	PollInterval time.Duration
	// ReadWait is how long a read waits for an event on a change stream before
	// it returns empty-handed. Defaults to 5 seconds.
	ReadWait time.Duration
	// Margin is how far a scan goes back behind the saved position, and how far
	// the cleaner stays behind every cursor: longer than any transaction stays
	// open. Defaults to twice the server's transactionLifetimeLimitSeconds and
	// 60 seconds; set it where the user may not ask for that parameter and it
	// was raised.
	Margin time.Duration
	// ClockSlack is how far the clocks of producers that store no seq may be
	// off. Defaults to 5 minutes.
	ClockSlack time.Duration
	// Logger takes the few lines that the store writes. Defaults to
	// slog.Default().
	Logger *slog.Logger
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

// minHashKeyBytes is the least length of Config.HashKey.
const minHashKeyBytes = 16

// Defaults of Config.
const (
	DefaultCollection   = "outbox"
	DefaultPollInterval = time.Second
	DefaultReadWait     = 5 * time.Second
	DefaultClockSlack   = 5 * time.Minute
)

// maxCollectionBytes leaves room for a database name and the suffixes within
// the server's limit of 255 bytes for a namespace.
const maxCollectionBytes = 180

// withDefaults returns c with its zero fields set, and every problem at once.
func (c Config) withDefaults() (Config, error) {
	var errs []error
	problem := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	c.Collection = orDefault(c.Collection, DefaultCollection)
	switch {
	case len(c.Collection) > maxCollectionBytes:
		problem("Collection is %d bytes long, limit %d", len(c.Collection), maxCollectionBytes)
	case strings.ContainsAny(c.Collection, "$\x00"), strings.HasPrefix(c.Collection, "system."):
		problem("Collection %q is no name that MongoDB allows", c.Collection)
	}
	c.MaxEventBytes = orDefault(c.MaxEventBytes, core.DefaultMaxEventBytes)
	if c.MaxEventBytes < 0 || c.MaxEventBytes > LargestEventBytes {
		problem("MaxEventBytes is %d: want 1 to %d, more does not fit into one change event", c.MaxEventBytes, LargestEventBytes)
	}
	for _, d := range []struct {
		name  string
		value *time.Duration
		zero  time.Duration
	}{
		{"PollInterval", &c.PollInterval, DefaultPollInterval},
		{"ReadWait", &c.ReadWait, DefaultReadWait},
		{"ClockSlack", &c.ClockSlack, DefaultClockSlack},
		{"Margin", &c.Margin, 0},
		{"CompletedRetention", &c.CompletedRetention, core.DefaultCompletedRetention},
		{"FailedRetention", &c.FailedRetention, core.DefaultFailedRetention},
	} {
		if *d.value < 0 {
			problem("%s is negative", d.name)
		}
		*d.value = orDefault(*d.value, d.zero)
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
	fields, err := c.Fields.withDefaults()
	if err != nil {
		errs = append(errs, err)
	}
	c.Fields = fields
	if c.Propagator == nil {
		c.Propagator = propagation.TraceContext{}
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.MeterProvider == nil {
		c.MeterProvider = otel.GetMeterProvider()
	}
	if len(errs) > 0 {
		return c, fmt.Errorf("checking the configuration of the MongoDB store: %w", errors.Join(errs...))
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
