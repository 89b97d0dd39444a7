package dedupe

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/otel/metric"
)

// Config says whose marks a Guard keeps, and how. Only Consumer is required.
type Config struct {
	// Consumer names what has the effects, such as "mailer": all processes that
	// share the work have one name, and two that each do work of their own have
	// two. At most 128 bytes, without "/". Events of two logs whose ids the
	// producers choose themselves may have equal ids: give the consumer a name
	// for each log then. Required.
	Consumer string
	// Retention is how long an event that was seen is remembered. It must be
	// longer than any delivery can come after the first one: the log's
	// retention, the broker's, and the time in which people redrive what failed.
	// Defaults to 30 days.
	Retention time.Duration
	// VersionRetention is how long IfNewer remembers the version of an aggregate
	// that doesn't change. Defaults to 0: for ever, which takes one small
	// document for each aggregate.
	VersionRetention time.Duration
	// Lease is how long a reservation lasts without a sign of its holder, who
	// renews it at each third. Defaults to 30 seconds.
	Lease time.Duration
	// OnCrash says what becomes of an event whose holder died between its
	// effect and the mark. Defaults to TryAgain.
	OnCrash CrashPolicy
	// Fence drops deliveries whose fence is lower than one seen for the same
	// route and key: those of a relay that was frozen and woke up after another
	// had taken over. Events that were redriven or dead letters are not
	// dropped. It costs a read for each transaction. Defaults to false.
	Fence bool
	// OnGap is called by IfNewer, after its commit, for a version that doesn't
	// follow the one before it. It may be called by several goroutines at once.
	// Defaults to nothing.
	OnGap func(Gap)
	// MeterProvider takes the counter outbox.dedupe.events. Defaults to none.
	MeterProvider metric.MeterProvider
}

// Defaults of Config.
const (
	DefaultRetention = 30 * 24 * time.Hour
	DefaultLease     = 30 * time.Second
)

// CrashPolicy says what becomes of an event of unknown effect.
type CrashPolicy uint8

const (
	// TryAgain has the effect again: it happens at least once.
	TryAgain CrashPolicy = iota
	// Report keeps the event as unknown, and has no effect again until a person
	// decides by Guard.Resolve: it happens at most once.
	Report
)

// Gap tells that versions of an aggregate were not seen.
type Gap struct {
	Aggregate, AggregateID string
	// Before and Version are the last one seen and the one at hand.
	Before, Version int64
}

const maxConsumerBytes = 128

// Validate reports all problems at once, or nil.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	add := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	switch {
	case c.Consumer == "":
		add("Consumer is empty: name what has the effects, such as \"mailer\"")
	case len(c.Consumer) > maxConsumerBytes || strings.Contains(c.Consumer, "/"):
		add("Consumer is longer than %d bytes or contains a slash", maxConsumerBytes)
	}
	if c.Retention < time.Minute {
		add("Retention is %v: it must be longer than any repeat can come late, at least 1m", c.Retention)
	}
	if c.VersionRetention != 0 && c.VersionRetention < time.Minute {
		add("VersionRetention is %v: use 0 to keep versions for ever, or at least 1m", c.VersionRetention)
	}
	if c.Lease < minLease {
		add("Lease is %v: at least %v", c.Lease, minLease)
	}
	if c.OnCrash > Report {
		add("OnCrash is %d: use TryAgain or Report", c.OnCrash)
	}
	return errors.Join(errs...)
}

const minLease = 300 * time.Millisecond

func (c Config) withDefaults() Config {
	if c.Retention == 0 {
		c.Retention = DefaultRetention
	}
	if c.Lease == 0 {
		c.Lease = DefaultLease
	}
	return c
}
