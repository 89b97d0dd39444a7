package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/gooutbox/outbox/core"
)

// Config configures a Relay. Sinks is required, and Routes with their Log, or
// Workers with their Queue; the zero value of every other field is useful.
type Config struct {
	// Log is where events are read. Required for Routes. Defaults to nil.
	Log core.Log
	// Queue is where events that were refused for now are parked, and where the
	// jobs of Workers are; its pauses of a sink stop routes too. It must be of the
	// same store as Log. Defaults to nil: a key whose event is refused waits in
	// memory, and a route whose cursor has parked events waits for a relay with a
	// queue.
	Queue core.Queue
	// Sinks are the destinations by the names that routes, workers and jobs use. The relay calls
	// Deliver and nothing else: closing them after Run has returned is the
	// caller's. Defaults to none.
	Sinks map[string]core.Sink
	// Routes are the cursors to run. Defaults to none.
	Routes []Route
	// Workers deliver the jobs of Queue, one for each sink. Defaults to none.
	Workers []Worker
	// OnFailed is called after an event or job has durably failed for good, or
	// ended as unknown (core.CodeUnknown), by the goroutine that set it aside: it
	// should return soon, and may be called by several at once. For a job whose
	// lease ran out, the process that took it back calls it; of two that did at
	// the same time both may. It is not called for one that a process set aside
	// just before it died. Defaults to nil: a line of the log tells it.
	OnFailed func(context.Context, FailedJob)
	// Owner names this process in the cursors that it holds. It must differ
	// from that of any other start, also of the same program on the same
	// machine: see NewOwner. Defaults to NewOwner().
	Owner string
	// Logger receives what people should know. Defaults to slog.Default().
	Logger *slog.Logger
	// MeterProvider receives the metrics. Defaults to otel.GetMeterProvider().
	MeterProvider metric.MeterProvider
	// TracerProvider receives a span for each call to a sink. Defaults to
	// otel.GetTracerProvider().
	TracerProvider trace.TracerProvider
	// Drain is how long Run waits for calls to sinks that are under way when
	// its context ends; then their contexts end. Defaults to 30 seconds.
	Drain time.Duration
	// CursorLease is how long a cursor stays with a process that is silent.
	// Defaults to core.DefaultCursorLease, 15 seconds.
	CursorLease time.Duration
	// Retention is the age from which on events that every cursor has passed
	// are removed. Negative keeps them for ever. Defaults to 7 days.
	Retention time.Duration
	// CleanInterval is the time between two rounds of the cleaner, which runs
	// while this process holds a cursor. Defaults to 5 minutes.
	CleanInterval time.Duration
	// StoreBackoff is how long to wait after the store failed. Defaults to 100
	// milliseconds, up to 10 seconds.
	StoreBackoff Backoff
	// MaxRedeliveries is how often a job whose lease ran out is lent again
	// before it is failed as crashed. All processes of a queue should agree. A job
	// that came back twice is delivered while its worker has no other such job:
	// with a lower limit, jobs that were only beside the one that ends processes
	// would fail with it, so 1 is refused. Defaults to core.DefaultMaxRedeliveries,
	// 5.
	MaxRedeliveries int
	// Reservations tells of the jobs of sinks that must not repeat, and whose
	// lease ran out, whether they may have been sent. Defaults to nil: they end
	// as unknown.
	Reservations core.Reservations
	// JobPoll is how often the queue is looked at when nothing tells of changes,
	// at most. Defaults to 15 seconds beside a stream of changes, which tells
	// earlier, and to 1 second without one.
	JobPoll time.Duration
}

// Route is one cursor: which events go to which sink, and how.
type Route struct {
	// Name of the cursor. It is stored: a route with a new name starts anew.
	// Required. Defaults to nothing.
	Name string
	// Sink is a key of Config.Sinks. Required. Defaults to nothing.
	Sink string
	// Start says where a cursor that doesn't exist yet begins. Defaults to the
	// beginning of the log.
	Start core.Start
	// Match selects events; the others are passed over. Defaults to all.
	Match Match
	// Marking sets published_at on delivered events, beside the cursor's
	// position. Defaults to false.
	Marking bool
	// Lanes is how many calls to the sink run at once. Defaults to 5.
	Lanes int
	// BatchEvents bounds one read of the log and one call to the sink, in
	// events. Defaults to core.DefaultReadEvents, 500.
	BatchEvents int
	// BatchBytes bounds the same in bytes, except that one event always fits.
	// Three times as much may wait in memory. Defaults to
	// core.DefaultReadBytes, 8 MiB.
	BatchBytes int
	// Window bounds the events read beyond the saved position, and so what is
	// repeated after a take-over. Defaults to 10,000.
	Window int
	// Timeout ends the context of a call to the sink. Defaults to 1 minute.
	Timeout time.Duration
	// Backoff is how long a key waits after its event was refused, or after
	// its outcome was unknown. Defaults to 1 second, up to 10 minutes.
	Backoff Backoff
	// OnFailure says whether a key goes on when one of its events failed for
	// good. Hold needs Config.Queue. Defaults to Skip.
	OnFailure FailurePolicy
	// MaxAttempts is how often an event is tried before it fails for good. What
	// says nothing about the event isn't counted: an outage, an unknown outcome.
	// Without Config.Queue there is no bound. Defaults to
	// core.DefaultMaxAttempts, 10.
	MaxAttempts int
	// MaxParked bounds the parked events of one key: above it the route reads
	// nothing more until they get on. One batch may come on top. Defaults to
	// 1,000.
	MaxParked int
	// OutageBackoff is how long the route waits while its sink is unavailable.
	// Defaults to 1 second, up to 30 seconds.
	OutageBackoff Backoff
}

// Defaults of Config and Route.
const (
	DefaultDrain         = 30 * time.Second
	DefaultRetention     = 7 * 24 * time.Hour
	DefaultCleanInterval = 5 * time.Minute
	DefaultLanes         = 5
	DefaultWindow        = 10_000
	DefaultTimeout       = time.Minute
	DefaultMaxParked     = 1000
)

// minLease is the shortest cursor lease: below it, scheduling delays of a
// healthy process would lose it.
const minLease = 100 * time.Millisecond

// Validate reports every problem of the configuration at once, joined, or nil.
func (c Config) Validate() error {
	var errs []error
	add := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Log == nil && len(c.Routes) > 0 {
		add("Log is nil: give the store that holds the events")
	}
	for _, name := range slices.Sorted(maps.Keys(c.Sinks)) {
		if c.Sinks[name] == nil {
			add("Sinks[%q] is nil", name)
		}
	}
	if len(c.Routes) == 0 && len(c.Workers) == 0 {
		add("Routes and Workers are empty: give at least one")
	}
	if len(c.Owner) > core.MaxNameBytes {
		add("Owner is too long: %d bytes, limit %d", len(c.Owner), core.MaxNameBytes)
	}
	if c.CursorLease != 0 && c.CursorLease < minLease {
		add("CursorLease is %v: must be at least %v, or 0 for the default", c.CursorLease, minLease)
	}
	addNegative(add, "Drain", c.Drain)
	addNegative(add, "CleanInterval", c.CleanInterval)
	c.StoreBackoff.check(add, "StoreBackoff")
	c.checkWorkers(add)
	seen := map[string]bool{}
	for i := range c.Routes {
		c.Routes[i].check(add, i, c.Sinks)
		if c.Routes[i].OnFailure == Hold && c.Queue == nil {
			add("Routes[%d].OnFailure is hold, which needs Queue: there a person retries or discards what holds a key", i)
		}
		if name := c.Routes[i].Name; name != "" {
			if seen[name] {
				add("Routes[%d] is named %q like an earlier one: each needs its own cursor", i, name)
			}
			seen[name] = true
		}
	}
	return errors.Join(errs...)
}

func (r *Route) check(add func(string, ...any), i int, sinks map[string]core.Sink) {
	at := fmt.Sprintf("Routes[%d]", i)
	switch {
	case r.Name == "":
		add("%s has no Name: it names the stored cursor", at)
	case len(r.Name) > core.MaxNameBytes:
		add("%s.Name is too long: %d bytes, limit %d", at, len(r.Name), core.MaxNameBytes)
	default:
		at = fmt.Sprintf("Routes[%d] (%s)", i, r.Name)
	}
	if r.Sink == "" {
		add("%s has no Sink: give a key of Sinks", at)
	} else if _, ok := sinks[r.Sink]; !ok {
		add("%s.Sink is %q, which Sinks does not hold", at, r.Sink)
	}
	if r.Start.Now && !r.Start.At.IsZero() {
		add("%s.Start has both Now and At: choose one", at)
	}
	r.Match.check(add, at)
	addNegative(add, at+".Lanes", r.Lanes)
	addNegative(add, at+".BatchEvents", r.BatchEvents)
	addNegative(add, at+".BatchBytes", r.BatchBytes)
	addNegative(add, at+".Window", r.Window)
	addNegative(add, at+".Timeout", r.Timeout)
	addNegative(add, at+".MaxAttempts", r.MaxAttempts)
	addNegative(add, at+".MaxParked", r.MaxParked)
	if r.OnFailure > Hold {
		add("%s.OnFailure is %v: must be Skip or Hold", at, r.OnFailure)
	}
	r.Backoff.check(add, at+".Backoff")
	r.OutageBackoff.check(add, at+".OutageBackoff")
}

func addNegative[T int | time.Duration](add func(string, ...any), field string, v T) {
	if v < 0 {
		add("%s is %v: must not be negative", field, v)
	}
}

// orDefault sets v to d if it is the zero value.
func orDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// withDefaults returns a copy of c, which is valid, without zero fields.
func (c Config) withDefaults() Config {
	if c.Owner == "" {
		c.Owner = NewOwner()
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.MeterProvider == nil {
		c.MeterProvider = otel.GetMeterProvider()
	}
	if c.TracerProvider == nil {
		c.TracerProvider = otel.GetTracerProvider()
	}
	orDefault(&c.Drain, DefaultDrain)
	orDefault(&c.CursorLease, core.DefaultCursorLease)
	orDefault(&c.Retention, DefaultRetention)
	orDefault(&c.CleanInterval, DefaultCleanInterval)
	c.StoreBackoff.setDefaults(100*time.Millisecond, 10*time.Second)
	c.Sinks = maps.Clone(c.Sinks)
	orDefault(&c.MaxRedeliveries, core.DefaultMaxRedeliveries)
	c.Workers = slices.Clone(c.Workers)
	for i := range c.Workers {
		c.Workers[i].setDefaults(c.Sinks[c.Workers[i].Sink])
	}
	c.Routes = slices.Clone(c.Routes)
	for i := range c.Routes {
		r := &c.Routes[i]
		orDefault(&r.Lanes, DefaultLanes)
		orDefault(&r.BatchEvents, core.DefaultReadEvents)
		orDefault(&r.BatchBytes, core.DefaultReadBytes)
		orDefault(&r.Window, DefaultWindow)
		orDefault(&r.Timeout, DefaultTimeout)
		orDefault(&r.MaxAttempts, core.DefaultMaxAttempts)
		orDefault(&r.MaxParked, DefaultMaxParked)
		r.Backoff.setDefaults(time.Second, 10*time.Minute)
		r.OutageBackoff.setDefaults(time.Second, 30*time.Second)
		r.Match = r.Match.clone()
	}
	return c
}
