package config

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/gooutbox/outbox/core"
)

// Worker delivers the jobs of one sink.
type Worker struct {
	// Sink is a key of Sinks, and what jobs name as theirs.
	Sink string `yaml:"sink,required"`
	// Lanes is how many calls to the sink run at once. Defaults to 5.
	Lanes int `yaml:"lanes" min:"1"`
	// BatchJobs bounds one call to the sink. 0, the default, leaves it to the
	// sink.
	BatchJobs int `yaml:"batch_jobs"`
	// Lease is how long a job stays with a process that is silent. Defaults to
	// 1 minute.
	Lease Duration `yaml:"lease" min:"1s"`
	// Timeout ends a call to the sink. Defaults to 1 minute.
	Timeout Duration `yaml:"timeout" min:"10ms"`
	// Backoff is how long a job waits after it was refused. Defaults to 1
	// second, up to 10 minutes.
	Backoff Backoff `yaml:"backoff"`
	// TypeBackoff replaces parts of Backoff for event types.
	TypeBackoff map[string]BackoffChange `yaml:"type_backoff"`
	// OutageBackoff is how long the worker waits while its sink is unavailable.
	// Defaults to 1 second, up to 30 seconds.
	OutageBackoff Backoff `yaml:"outage_backoff"`
	// Rate bounds the jobs a second of this process, TenantRate those of one
	// tenant. 0, the default, is no limit.
	Rate       Rate `yaml:"rate"`
	TenantRate Rate `yaml:"tenant_rate"`
}

// BackoffChange replaces what is given of a Backoff.
type BackoffChange struct {
	Initial *Duration `yaml:"initial" min:"1ms"`
	Max     *Duration `yaml:"max" min:"1ms"`
}

// In returns b with what c gives.
func (c BackoffChange) In(b Backoff) Backoff {
	if c.Initial != nil {
		b.Initial = *c.Initial
	}
	if c.Max != nil {
		b.Max = *c.Max
	}
	return b
}

// SetDefaults fills w with the defaults.
func (w *Worker) SetDefaults() {
	*w = Worker{
		Lanes: 5, Lease: Duration(core.DefaultJobLease), Timeout: Duration(time.Minute),
		Backoff:       Backoff{Initial: Duration(time.Second), Max: Duration(10 * time.Minute)},
		OutageBackoff: Backoff{Initial: Duration(time.Second), Max: Duration(30 * time.Second)},
	}
}

// checkWorkers checks what no single value shows.
func (f *File) checkWorkers(report Report, sinks []string) {
	seen := map[string]int{}
	for i, w := range f.Workers {
		at := fmt.Sprintf("workers[%d]", i)
		if w.Sink != "" {
			f.checkSink(at, w.Sink, report, sinks)
			if first, twice := seen[w.Sink]; twice {
				report(at+".sink", fmt.Sprintf("workers[%d] is for this sink too: raise its lanes", first))
			} else {
				seen[w.Sink] = i
			}
		}
		w.Backoff.check(at+".backoff", report)
		w.OutageBackoff.check(at+".outage_backoff", report)
		for _, name := range slices.Sorted(maps.Keys(w.TypeBackoff)) {
			w.TypeBackoff[name].In(w.Backoff).check(at+".type_backoff."+showKey(name), report)
		}
	}
}

// Rate is a number a second; 0 is no limit.
type Rate float64

// UnmarshalText reads a number.
func (r *Rate) UnmarshalText(text []byte) error {
	n, err := strconv.ParseFloat(string(text), 64)
	if err != nil || n < 0 || n > 1e9 || math.IsNaN(n) {
		return errors.New("must be a number a second, such as 14 or 0.5; 0 is no limit")
	}
	*r = Rate(n)
	return nil
}

// MarshalText is the inverse of UnmarshalText.
func (r Rate) MarshalText() ([]byte, error) {
	return strconv.AppendFloat(nil, float64(r), 'g', -1, 64), nil
}
