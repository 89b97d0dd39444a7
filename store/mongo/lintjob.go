package mongo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/gooutbox/outbox/core"
)

// mixed reports that a field has several types: values of different types with
// one text are one id, or one key, outside the database and two inside.
func (l *linter) mixed(k *kinds) {
	if len(k.of) < 2 {
		return
	}
	var types []bson.Type
	for t := range k.of {
		types = append(types, t)
	}
	slices.SortFunc(types, func(a, b bson.Type) int {
		if k.counts[a] != k.counts[b] {
			return int(k.counts[b] - k.counts[a])
		}
		return int(a) - int(b)
	})
	most := types[0]
	var rest []string
	for _, t := range types[1:] {
		rest = append(rest, fmt.Sprintf("%d of type %s", k.counts[t], kindOf(t)))
	}
	f := LintFinding{
		Collection: k.collection, Field: k.field,
		Problem: fmt.Sprintf("has several types: %d of type %s, %s", k.counts[most], kindOf(most), strings.Join(rest, ", ")),
		Advice:  "keep to one type: values of different types may have one text, and sinks see the text",
	}
	for _, t := range types[1:] {
		for _, raw := range k.of[t] {
			l.add(f, raw)
		}
	}
	known := l.found[lintKey{f.Collection, f.Field, f.Problem}]
	known.Count = 0
	for _, t := range types[1:] {
		known.Count += k.counts[t]
	}
}

// job looks at a document of the queue.
func (l *linter) job(ctx context.Context, raw bson.Raw) {
	if _, err := raw.LookupErr("_id", "pause"); err == nil {
		return
	}
	add := func(fatal bool, field, problem, advice string) {
		l.add(LintFinding{Collection: l.store.jobs.Name(), Field: field, Problem: problem, Advice: advice, Fatal: fatal}, raw)
	}
	state, isText := raw.Lookup("state").StringValueOK()
	switch core.JobState(state) {
	case core.JobReady, core.JobActive:
	case core.JobCompleted, core.JobFailed, core.JobUnknown:
		return
	default:
		problem := "is none of ready, active, completed, failed, unknown"
		if !isText {
			problem = "is no string"
		}
		add(true, "state", problem, `insert jobs with state: "ready"`)
		return
	}
	j := l.store.decodeJob(ctx, raw)
	switch d, ok := errors.AsType[*DecodeError](j.err); {
	case ok:
		add(true, d.Field, d.Problem, "a worker sets it aside as failed: correct its producer")
	case j.err != nil:
		add(false, "payload", "could not be opened just now", "see whether the codec's keys can be reached")
	}
	if sink, ok := raw.Lookup("sink").StringValueOK(); !ok || sink == "" {
		add(true, "sink", "is missing, or no string", never)
	}
	if _, err := raw.LookupErr("cursor"); err != nil {
		if rank, ok := wholeOf(raw.Lookup("rank")); !ok || rank < 0 || rank > int64(lastRank) {
			add(true, "rank", "is no number from 0 to 2", never)
		}
	}
	for _, f := range jobTypes {
		v, err := raw.LookupErr(f.name)
		if err == nil && v.Type != bson.TypeNull && !slices.Contains(f.types, v.Type) {
			add(f.fatal, f.name, "is of type "+kindOf(v.Type)+", want "+f.want, f.advice)
		}
	}
	if _, err := raw.LookupErr("cursor"); err != nil {
		l.enqueued(&j, raw)
	}
	if state == string(core.JobActive) && raw.Lookup("lease_until").Type != bson.TypeDateTime {
		add(true, "lease_until", "is missing", `its lease never ends: set state to "ready"`)
	}
}

// enqueued looks at what a producer wrote into a job that can be delivered, but
// maybe not as it was meant.
func (l *linter) enqueued(j *readJob, raw bson.Raw) {
	add := func(field, problem, advice string) {
		l.add(LintFinding{Collection: l.store.jobs.Name(), Field: field, Problem: problem, Advice: advice}, raw)
	}
	if j.err == nil {
		job := core.Job{Event: j.event, Sink: "any"}
		for _, f := range fieldErrors(job.Validate(LargestEventBytes)) {
			add(storedName(&jobFields, f.Field), f.Problem, "Enqueue would refuse it, and a sink may: correct its producer")
		}
		if headers, ok := raw.Lookup(jobFields.Headers).DocumentOK(); ok {
			for els := walk(headers); els.next(); {
				if els.value.Type != bson.TypeString && els.value.Type != bson.TypeNull {
					add(jobFields.Headers, "holds a value of type "+kindOf(els.value.Type)+", want a string",
						"it goes out as a text: write it as the one that is meant")
				}
			}
		}
	}
	switch v := raw.Lookup("priority"); {
	case v.IsZero() || v.Type == bson.TypeNull:
	case !slices.Contains(priorities, v.String()):
		add("priority", "is none of high, normal, low", "rank alone counts: "+rankAdvice)
	case v.String() != priorities[j.rank%len(priorities)]:
		add("priority", "contradicts rank", "rank alone counts: "+rankAdvice)
	}
	if j.attempts > j.maxAttempts {
		add("attempts", "are more than max_attempts", "it fails at its next refusal: insert jobs without attempts")
	}
	switch v := raw.Lookup("not_before"); {
	case v.IsZero() || v.Type == bson.TypeNull:
	case v.Type != bson.TypeDateTime:
		add("not_before", "is of type "+kindOf(v.Type)+", want a date", "it is ignored: write a date, and the same into available_at")
	case j.early(time.Now()) && j.state == core.JobReady:
		add("available_at", "is before not_before", "a claim puts it off, which costs some: write the same date into both")
	}
}

// priorities by rank, as EJSON tells strings.
var priorities = []string{`"high"`, `"normal"`, `"low"`}

const rankAdvice = "write 0 for high, 1 for normal, 2 for low, and the fitting priority or none"

// numbers are the types that count.
var numbers = []bson.Type{bson.TypeInt32, bson.TypeInt64, bson.TypeDouble, bson.TypeDecimal128}

var dates = []bson.Type{bson.TypeDateTime}

const never = "no worker ever takes it: correct its producer, and the document"

// jobTypes are the types of the fields that claims and settlements compute with,
// and what comes of another.
var jobTypes = []struct {
	name, want string
	types      []bson.Type
	fatal      bool
	advice     string
}{
	{"tenant", "a string", []bson.Type{bson.TypeString}, true, "workers that take tenants in turn never take it: correct its producer, and the document"},
	{"available_at", "a date", dates, true, "it goes out at once, or never: correct its producer, and the document"},
	{"lease_until", "a date", dates, true, `its lease never ends: set state to "ready"`},
	{"expire_at", "a date", dates, true, "it is never removed: correct its producer, and the document"},
	{"attempts", "a number", numbers, false, "it counts as 0: insert jobs without attempts"},
	{"max_attempts", "a number", numbers, false, "the default counts: correct its producer"},
	{"redeliveries", "a number", numbers, false, "it counts as 0: insert jobs without redeliveries"},
}
