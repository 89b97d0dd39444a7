package relay

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/gooutbox/outbox/core"
)

// Worker delivers the jobs of one sink. Any number of processes may run a worker
// of the same sink: each job is lent to one of them at a time.
type Worker struct {
	// Sink is a key of Config.Sinks, and the Job.Sink of the jobs that it takes.
	// Required. Defaults to nothing.
	Sink string
	// Lanes is how many calls to the sink run at once. Defaults to 5.
	Lanes int
	// BatchJobs bounds one call to the sink, in jobs. Defaults to 1 for a sink
	// that doesn't declare its capabilities, such as a core.SinkFunc, and else to
	// 100, or to its Capabilities.MaxBatch where that is less.
	BatchJobs int
	// Lease is how long a job stays with a process that is silent. Defaults to
	// core.DefaultJobLease, 60 seconds.
	Lease time.Duration
	// Timeout ends the context of a call to the sink, which also ends when a
	// lease is lost. Defaults to 1 minute.
	Timeout time.Duration
	// Backoff is how long a job waits after it was refused, or after its outcome
	// was unknown. Defaults to 1 second, up to 10 minutes.
	Backoff Backoff
	// TypeBackoff is Backoff for events of a type. Its zero fields are those of
	// Backoff. Defaults to none.
	TypeBackoff map[string]Backoff
	// OutageBackoff is how long the worker waits while its sink is unavailable.
	// Defaults to 1 second, up to 30 seconds.
	OutageBackoff Backoff
	// Rate is how many jobs this worker delivers a second at most, in this
	// process, and TenantRate how many of one tenant. Defaults to 0, no limit.
	Rate, TenantRate float64
}

// Defaults of Worker and of what goes with it.
const (
	DefaultBatchJobs = 100
	// DefaultJobPoll is Config.JobPoll beside a stream of changes, and
	// DefaultJobPollAlone without one.
	DefaultJobPoll      = 15 * time.Second
	DefaultJobPollAlone = time.Second
)

// minJobLease is the shortest lease of jobs: what runs out is taken back 5
// seconds later, and below it scheduling delays would lose it.
const minJobLease = time.Second

func (c *Config) checkWorkers(add func(string, ...any)) {
	if len(c.Workers) > 0 && c.Queue == nil {
		add("Workers need a Queue: give the store that holds the jobs")
	}
	addNegative(add, "MaxRedeliveries", c.MaxRedeliveries)
	if c.MaxRedeliveries > 0 && c.MaxRedeliveries < suspectFrom {
		add("MaxRedeliveries is %d: must be at least %d, or 0 for the default: which of the jobs that came back together "+
			"ended their process shows only after so many", c.MaxRedeliveries, suspectFrom)
	}
	addNegative(add, "JobPoll", c.JobPoll)
	seen := map[string]int{}
	for i := range c.Workers {
		c.Workers[i].check(add, i, c.Sinks)
		sink := c.Workers[i].Sink
		if first, there := seen[sink]; there && sink != "" {
			add("Workers[%d] is for sink %q like Workers[%d]: raise the Lanes of one", i, sink, first)
		} else {
			seen[sink] = i
		}
	}
}

func (w *Worker) check(add func(string, ...any), i int, sinks map[string]core.Sink) {
	at := fmt.Sprintf("Workers[%d]", i)
	if w.Sink == "" {
		add("%s has no Sink: give a key of Sinks", at)
	} else {
		at = fmt.Sprintf("Workers[%d] (%s)", i, w.Sink)
		if _, ok := sinks[w.Sink]; !ok {
			add("%s: Sinks does not hold its sink", at)
		}
	}
	addNegative(add, at+".Lanes", w.Lanes)
	addNegative(add, at+".BatchJobs", w.BatchJobs)
	addNegative(add, at+".Timeout", w.Timeout)
	if w.Lease != 0 && w.Lease < minJobLease {
		add("%s.Lease is %v: must be at least %v, or 0 for the default", at, w.Lease, minJobLease)
	}
	w.Backoff.check(add, at+".Backoff")
	w.OutageBackoff.check(add, at+".OutageBackoff")
	for _, name := range slices.Sorted(maps.Keys(w.TypeBackoff)) {
		b := w.TypeBackoff[name]
		b.check(add, fmt.Sprintf("%s.TypeBackoff[%q]", at, name))
	}
	checkRate(add, at+".Rate", w.Rate)
	checkRate(add, at+".TenantRate", w.TenantRate)
}

func checkRate(add func(string, ...any), at string, rate float64) {
	if rate < 0 || math.IsNaN(rate) || math.IsInf(rate, 0) {
		add("%s is %v: must be a number of jobs a second, or 0 for no limit", at, rate)
	}
}

// setDefaults fills zero fields of a valid worker. Its map is its own
// from then on.
func (w *Worker) setDefaults(sink core.Sink) {
	orDefault(&w.Lanes, DefaultLanes)
	orDefault(&w.Lease, core.DefaultJobLease)
	orDefault(&w.Timeout, DefaultTimeout)
	w.Backoff.setDefaults(time.Second, 10*time.Minute)
	w.OutageBackoff.setDefaults(time.Second, 30*time.Second)
	w.TypeBackoff = maps.Clone(w.TypeBackoff)
	for name, b := range w.TypeBackoff {
		b.setDefaults(w.Backoff.Initial, w.Backoff.Max)
		w.TypeBackoff[name] = b
	}
	most := core.CapabilitiesOf(sink).MaxBatch
	if w.BatchJobs == 0 {
		w.BatchJobs = DefaultBatchJobs
		if _, declares := sink.(core.Describer); !declares {
			w.BatchJobs = 1
		}
	}
	if most > 0 {
		w.BatchJobs = min(w.BatchJobs, most)
	}
}
