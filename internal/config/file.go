package config

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/gooutbox/outbox/core"
)

// File is the configuration of one relay process.
type File struct {
	// Store is where the events are.
	Store Choice `yaml:"store,required"`
	// Sinks are the destinations by name.
	Sinks map[string]Choice `yaml:"sinks,required"`
	// Routes tie cursors to sinks, Workers jobs. At least one is needed.
	Routes  []Route  `yaml:"routes"`
	Workers []Worker `yaml:"workers"`
	Queue   Queue    `yaml:"queue"`
	Relay   Relay    `yaml:"relay"`
	Admin   Admin    `yaml:"admin"`
	Log     Log      `yaml:"log"`

	secrets []string
	// sinkNames are those of Sinks, also where only the store was read.
	sinkNames []string
}

// SinkNames are the names of the sinks, sorted, also of a file of which the store
// alone was read.
func (f *File) SinkNames() []string {
	if len(f.Sinks) > 0 {
		return slices.Sorted(maps.Keys(f.Sinks))
	}
	return slices.Sorted(slices.Values(f.sinkNames))
}

// Choice is a store or sink: which one, and its own options.
type Choice struct {
	// Type is a key of Kinds.
	Type string
	// Options is what the function in Kinds returned, filled in.
	Options any

	store bool
}

// Kinds lists the stores and sinks that a file may name.
type Kinds struct {
	Stores, Sinks map[string]func() any

	storeOnly bool
}

// Route is one cursor: which events go to which sink.
type Route struct {
	// Name of the cursor. It is stored: a route with a new name starts anew.
	Name string `yaml:"name,required"`
	// Sink is a key of Sinks.
	Sink string `yaml:"sink,required"`
	// Start says where a new cursor begins. Defaults to the beginning.
	Start Start `yaml:"start"`
	// IncludePublished also sends events already marked as published.
	IncludePublished bool `yaml:"include_published"`
	// Match narrows the route. The zero value matches every event.
	Match Match `yaml:"match"`
	// MarkPublished sets published_at on delivered events.
	MarkPublished bool `yaml:"mark_published"`
	// Lanes is how many calls to the sink run at once. Defaults to 5.
	Lanes int `yaml:"lanes" min:"1"`
	// Batch bounds one read of the log and one call to the sink.
	Batch Batch `yaml:"batch"`
	// Window bounds the events delivered beyond the saved position. Defaults
	// to 10,000.
	Window int `yaml:"window" min:"1"`
	// Timeout ends a call to the sink. Defaults to 1 minute.
	Timeout Duration `yaml:"timeout" min:"10ms"`
	// Backoff is how long a key waits after its event was refused. Defaults to
	// 1 second, up to 10 minutes.
	Backoff Backoff `yaml:"backoff"`
	// OutageBackoff is how long the route waits while its sink is unavailable.
	// Defaults to 1 second, up to 30 seconds.
	OutageBackoff Backoff `yaml:"outage_backoff"`
	// OnFailure says whether a key goes on, skip, or waits for a person, hold,
	// when one of its events failed for good. Defaults to skip.
	OnFailure string `yaml:"on_failure" enum:"skip,hold"`
	// MaxAttempts is how often an event is tried before it fails for good.
	// Defaults to 10.
	MaxAttempts int `yaml:"max_attempts" min:"1"`
	// MaxParked bounds the parked events of one key. Defaults to 1,000.
	MaxParked int `yaml:"max_parked" min:"1"`
}

// Backoff is a wait that doubles from Initial to Max.
type Backoff struct {
	Initial Duration `yaml:"initial" min:"1ms"`
	Max     Duration `yaml:"max" min:"1ms"`
}

func (m Match) check(at string, report Report) {
	for _, field := range []struct {
		name string
		list []string
	}{{"aggregates", m.Aggregates}, {"types", m.Types}} {
		for i, name := range field.list {
			if star := strings.IndexByte(name, '*'); name == "" || star >= 0 && star != len(name)-1 {
				report(fmt.Sprintf("%s.%s[%d]", at, field.name, i), "must be a name; a star may stand at its end only")
			}
		}
	}
}

func (b Backoff) check(at string, report Report) {
	if b.Max < b.Initial {
		report(at+".max", "must not be less than initial, "+b.Initial.String())
	}
}

// SetDefaults fills r with the defaults.
func (r *Route) SetDefaults() {
	*r = Route{
		Lanes:  5,
		Batch:  Batch{Events: core.DefaultReadEvents, Bytes: core.DefaultReadBytes},
		Window: 10_000, Timeout: Duration(time.Minute),
		Backoff:   Backoff{Initial: Duration(time.Second), Max: Duration(10 * time.Minute)},
		OnFailure: "skip", MaxAttempts: core.DefaultMaxAttempts, MaxParked: 1000,
		OutageBackoff: Backoff{Initial: Duration(time.Second), Max: Duration(30 * time.Second)},
	}
}

// Match selects events. Both lists empty match all; one list matches by any of
// its entries, both must match. A star at the end of an entry stands for any
// rest.
type Match struct {
	Aggregates []string `yaml:"aggregates"`
	Types      []string `yaml:"types"`
}

// Batch is a bound in events and bytes.
type Batch struct {
	Events int  `yaml:"events" min:"1"`
	Bytes  Size `yaml:"bytes" min:"1"`
}

// Queue says how the store keeps jobs.
type Queue struct {
	// CompletedRetention is how long completed jobs are kept, and so for how
	// long a dedup key holds. Defaults to 1 day.
	CompletedRetention Duration `yaml:"completed_retention" min:"1s"`
	// FailedRetention is how long failed jobs that were enqueued are kept. Those
	// of a cursor are kept until a person decides. Defaults to 7 days.
	FailedRetention Duration `yaml:"failed_retention" min:"1s"`
	// Retain says which jobs that ended keep their payload. Defaults to failed.
	Retain string `yaml:"retain" enum:"failed,all,none"`
	// MaxRedeliveries is how often a job may come back from a process that fell
	// silent before it is failed as crashed. Defaults to 5.
	MaxRedeliveries int `yaml:"max_redeliveries" min:"2"`
}

// Relay holds what concerns all routes of the process.
type Relay struct {
	// Owner names the process in cursors, where a part that is random at each
	// start follows it. Defaults to host name and process id.
	Owner string `yaml:"owner"`
	// Drain is how long a stop waits for deliveries under way. Defaults to 30
	// seconds.
	Drain Duration `yaml:"drain"`
	// CursorLease is how long a cursor stays with a process that is silent.
	// Defaults to 15 seconds.
	CursorLease Duration `yaml:"cursor_lease" min:"100ms"`
	// Retention is the age at which delivered events are removed. Defaults to
	// 7 days; 0 keeps them for ever.
	Retention Duration `yaml:"retention"`
	// CleanInterval is the time between two rounds of removing them. Defaults
	// to 5 minutes.
	CleanInterval Duration `yaml:"clean_interval" min:"100ms"`
}

// Admin is the listener for metrics and health.
type Admin struct {
	// Listen is the address, host:port. Empty means no listener.
	Listen string `yaml:"listen"`
	// AllowRemote permits an address that is not a loopback one.
	AllowRemote bool `yaml:"allow_remote"`
	// ReadyLag is from which age of what waits on the relay counts as behind.
	// Defaults to 5 minutes; 0 never.
	ReadyLag Duration `yaml:"ready_lag"`
}

// Log says what is logged and how.
type Log struct {
	Level  string `yaml:"level" enum:"debug,info,warn,error"`
	Format string `yaml:"format" enum:"text,json"`
}

// Default returns a File with every default, without store, sinks and routes.
func Default() *File {
	return &File{
		Queue: Queue{
			CompletedRetention: Duration(core.DefaultCompletedRetention),
			FailedRetention:    Duration(core.DefaultFailedRetention),
			Retain:             "failed",
			MaxRedeliveries:    core.DefaultMaxRedeliveries,
		},
		Relay: Relay{
			Drain:         Duration(30 * time.Second),
			CursorLease:   Duration(core.DefaultCursorLease),
			Retention:     Duration(7 * 24 * time.Hour),
			CleanInterval: Duration(5 * time.Minute),
		},
		Admin: Admin{ReadyLag: Duration(5 * time.Minute)},
		Log:   Log{Level: "info", Format: "text"},
	}
}

var namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

const nameRule = "must be 1 to 64 letters, digits, dots, dashes or underscores, and begin with a letter or digit"

// Validate checks what no single value shows.
func (f *File) Validate(report Report) {
	names := slices.Sorted(maps.Keys(f.Sinks))
	for _, name := range names {
		if !namePattern.MatchString(name) {
			report("sinks."+name, "the name "+nameRule)
		}
	}
	seen := map[string]int{}
	for i, r := range f.Routes {
		at := fmt.Sprintf("routes[%d]", i)
		if r.Name != "" {
			if !namePattern.MatchString(r.Name) {
				report(at+".name", nameRule)
			} else if first, twice := seen[r.Name]; twice {
				report(at+".name", fmt.Sprintf("routes[%d] has this name too: each route is a cursor of its own", first))
			} else {
				seen[r.Name] = i
			}
		}
		r.Match.check(at+".match", report)
		r.Backoff.check(at+".backoff", report)
		r.OutageBackoff.check(at+".outage_backoff", report)
		f.checkSink(at, r.Sink, report, names)
	}
	if len(f.Routes) == 0 && len(f.Workers) == 0 {
		report("routes", "are missing: name at least one, or one of workers")
	}
	f.checkWorkers(report, names)
	if f.Relay.Owner != "" && !namePattern.MatchString(f.Relay.Owner) {
		report("relay.owner", nameRule)
	}
	if err := f.Admin.checkListen(); err != nil {
		report("admin.listen", err.Error())
	}
}

// checkSink refuses a sink that is none of those with the names.
func (f *File) checkSink(at, sink string, report Report, names []string) {
	if _, known := f.Sinks[sink]; !known && sink != "" && len(names) > 0 {
		report(at+".sink", "no such sink; sinks are: "+strings.Join(names, ", "))
	}
}
