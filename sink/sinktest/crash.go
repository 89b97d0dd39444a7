package sinktest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gooutbox/outbox/core"
)

// Table is what faults at each step of a sink did.
type Table []Row

// Row is one fault.
type Row struct {
	Step string
	When When
	// Events is how many were in the call that was broken, Repeats how many of
	// them arrived a second time after all were delivered.
	Events, Repeats int
	// First counts the outcomes of the call that was broken.
	First map[core.Outcome]int
}

// Worst is the largest number of repeats after one fault: what the sink's
// documentation may promise.
func (t Table) Worst() int {
	worst := 0
	for _, r := range t {
		worst = max(worst, r.Repeats)
	}
	return worst
}

// String is the table in Markdown.
func (t Table) String() string {
	var b strings.Builder
	b.WriteString("| step | fault | outcomes of the call | repeats |\n| --- | --- | --- | --- |\n")
	for _, r := range t {
		var words []string
		for o := core.NotAttempted; o <= core.Unknown; o++ {
			if n := r.First[o]; n > 0 {
				words = append(words, fmt.Sprintf("%d %v", n, o))
			}
		}
		fmt.Fprintf(&b, "| %s | %v | %s | %d of %d |\n", r.Step, r.When, strings.Join(words, ", "), r.Repeats, r.Events)
	}
	return b.String()
}

// CrashPoints breaks every step of the sink before, during and after it, each
// time in a call of its own, and goes on as a relay does until everything is
// delivered. It fails if an event is lost, if an answer isn't true, if a key's
// events change places, or if more is repeated than Step.Repeats allows. The
// table tells what each fault did. Run includes it.
func CrashPoints(t *testing.T, h Harness) Table {
	t.Helper()
	var table Table
	n := len(h.New(t).Steps)
	for step := range n {
		for when := Before; when <= After; when++ {
			d := h.New(t)
			t.Run(fmt.Sprintf("%s-%v", strings.ReplaceAll(d.Steps[step].Name, " ", "_"), when), func(t *testing.T) {
				table = append(table, crash(t, d, step, when))
			})
		}
	}
	return table
}

func crashPoints(t *testing.T, h Harness) {
	if len(h.New(t).Steps) == 0 {
		t.Skip("the harness can't break a step")
	}
	t.Log("\n" + CrashPoints(t, h).String())
}

// What is in the call that is broken: several keys, several events of each.
const crashKeys, crashEvents = 12, 2

// crash breaks one step.
func crash(t *testing.T, d Destination, step int, when When) Row {
	s := d.open(t)
	mustDeliver(t, s, lease("before", 100))
	var leases []core.Lease
	for range crashEvents {
		for k := range crashKeys {
			leases = append(leases, lease(fmt.Sprintf("crash-%d", k), 100))
		}
	}
	first, struck := breakOne(t, d, s, step, when, call(s, leases))
	if !struck {
		t.Fatalf("the fault at %s was never met", d.Steps[step].Name)
	}
	row := Row{Step: d.Steps[step].Name, When: when, Events: len(first.leases), First: map[core.Outcome]int{}}
	for _, r := range first.results {
		row.First[r.Outcome]++
	}
	carryOn(t, s, leases, first)
	there := d.Received(t)
	for k := range crashKeys {
		var want []string
		key := fmt.Sprintf("crash-%d", k)
		for _, l := range leases {
			if l.Event.AggregateID == key {
				want = append(want, l.Event.ID)
			}
		}
		got := idsOf(there, key)
		distinct := firsts(got)
		if core.CapabilitiesOf(s).NoRepeat { // what is unknown is not sent again
			want = slices.DeleteFunc(want, func(id string) bool {
				at := slices.IndexFunc(first.leases, func(l core.Lease) bool { return l.Event.ID == id })
				return at >= 0 && first.results[at].Outcome == core.Unknown && !slices.Contains(got, id)
			})
		}
		row.Repeats += len(got) - len(distinct)
		if d.Unordered {
			slices.Sort(distinct)
			slices.Sort(want)
		}
		if !slices.Equal(distinct, want) {
			t.Errorf("%s arrived as %v, want %v", key, got, want)
		}
	}
	most := 0
	if d.Steps[step].Repeats {
		most = row.Events
	}
	if row.Repeats > most {
		t.Errorf("%d of %d events were repeated, at most %d may be", row.Repeats, row.Events, most)
	}
	return row
}

// attempt is a call and its answer.
type attempt struct {
	leases  []core.Lease
	results []core.Result
}

// call takes the leases that may be in one call of the sink.
func call(s core.Sink, leases []core.Lease) []core.Lease {
	c := core.CapabilitiesOf(s)
	var out []core.Lease
	keys := map[string]bool{}
	for _, l := range leases {
		if key := l.Event.AggregateID; c.PrefixPerKey || !keys[key] {
			keys[key] = true
			out = append(out, l)
		}
		if c.MaxBatch > 0 && len(out) == c.MaxBatch {
			break
		}
	}
	return out
}

// breakOne makes a call in which the step fails, and checks what it answers.
func breakOne(t *testing.T, d Destination, s core.Sink, step int, when When, leases []core.Lease) (attempt, bool) {
	t.Helper()
	struck := d.Steps[step].Break(t, when)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	a := attempt{leases, deliver(t, ctx, s, leases...)}
	met := struck()
	for i, r := range a.results {
		if r.Outcome == core.Rejected || r.Outcome == core.Refused {
			t.Errorf("result %d of a call that was broken off is %v (%v): nothing is wrong with the event", i, r.Outcome, r.Err)
		}
	}
	checkTruth(t, d.received(t), a.leases, a.results)
	return a, met
}

// carryOn delivers what the first call left, as a relay does: the keys in order,
// and what is unknown once more, unless the sink declares NoRepeat.
func carryOn(t *testing.T, s core.Sink, leases []core.Lease, last attempt) {
	t.Helper()
	noRepeat := core.CapabilitiesOf(s).NoRepeat
	left := slices.Clone(leases)
	settle := func(a attempt) {
		outcome := map[string]core.Outcome{}
		for i, r := range a.results {
			outcome[a.leases[i].Event.ID] = r.Outcome
		}
		left = slices.DeleteFunc(left, func(l core.Lease) bool {
			o := outcome[l.Event.ID]
			return o == core.Delivered || o == core.Unknown && noRepeat
		})
		for i := range left {
			if outcome[left[i].Event.ID] == core.Unknown {
				left[i].Redelivered = true
			}
		}
	}
	settle(last)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for len(left) > 0 {
		before := len(left)
		c := call(s, left)
		settle(attempt{c, deliver(t, ctx, s, c...)})
		if len(left) < before {
			continue
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("after the fault %d events are still not delivered", len(left))
		}
	}
}

func lostAnswerIsUnknown(t *testing.T, h Harness) {
	eachStore(t, h, func(t *testing.T, d Destination, step int) {
		s := d.open(t)
		mustDeliver(t, s, lease("before", 100))
		a, struck := breakOne(t, d, s, step, After, keys("lost", 5, 100))
		if !struck {
			t.Fatal("the fault was never met")
		}
		there := d.received(t)
		unknown := 0
		for i, r := range a.results {
			if r.Outcome == core.Unknown && there[a.leases[i].Event.ID] > 0 {
				unknown++
			}
		}
		if unknown == 0 && !slices.Contains(outcomesOf(a.results), core.Delivered) {
			t.Errorf("events whose answer was lost are %v, want unknown", outcomesOf(a.results))
		}
	})
}

// noRetryInside breaks the step that holds the events once. A sink that tried
// again would report all as delivered.
func noRetryInside(t *testing.T, h Harness) {
	eachStore(t, h, func(t *testing.T, d Destination, step int) {
		for _, when := range []When{During, After} {
			s := d.open(t)
			mustDeliver(t, s, lease("before", 100))
			a, struck := breakOne(t, d, s, step, when, keys("once-"+when.String(), 5, 100))
			if !struck {
				t.Fatal("the fault was never met")
			}
			if !slices.ContainsFunc(a.results, func(r core.Result) bool { return r.Outcome != core.Delivered }) {
				t.Errorf("the request failed %v it was carried out, and everything is delivered: the sink tried again by itself", when)
			}
		}
	})
}

func eachStore(t *testing.T, h Harness, check func(t *testing.T, d Destination, step int)) {
	n, found := len(h.New(t).Steps), false
	for step := range n {
		if d := h.New(t); d.Steps[step].Stores {
			found = true
			check(t, d, step)
		}
	}
	if !found {
		t.Skip("the harness can't break a step that stores events")
	}
}
