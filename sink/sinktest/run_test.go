package sinktest

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gooutbox/outbox/core"
)

// brokenVariable names the flaw of the sink that TestSinkWithAFlaw runs on.
const brokenVariable = "SINKTEST_FLAW"

// flaws, and the rules that have to notice. Others must not fail.
var flaws = map[string][]string{
	"none":           nil,
	"plain":          nil, // declares nothing, and keeps that
	"never repeats":  nil, // declares NoRepeat
	"loses":          {"ConfirmedIsThere"},
	"repeats":        {"ConfirmedIsThere"},
	"forgets":        {"OneResultPerLease"},
	"goes on":        {"KeyStopsAtFirstFailure", "BadEventStopsOnlyLaterOnes", "OrderThroughFailures"},
	"all or nothing": {"BadEventFailsAlone", "KeyStopsAtFirstFailure", "HugeEventHarmsNoOther"},
	"stops earlier":  {"BadEventStopsOnlyLaterOnes"},

	// Each of these fails exactly the rule that it is named for.
	"answers nobody":       {"EmptyCall"},
	"another body":         {"ConfirmedIsThere"},
	"reverses":             {"OrderWithinKey"},
	"one bad, all bad":     {"BadEventFailsAlone"},
	"sends what follows":   {"KeyStopsAtFirstFailure"},
	"holds what precedes":  {"BadEventStopsOnlyLaterOnes"},
	"takes oversizes":      {"CapabilitiesAreHonoured"},
	"takes only some":      {"LargeCall"},
	"chokes":               {"HugeEventHarmsNoOther"},
	"hopes":                {"RejectedForGood"},
	"gives up":             {"RefusedForNow"},
	"puts retries first":   {"OrderThroughFailures"},
	"takes nothing twice":  {"RepeatsAreAsDeclared"},
	"one at a time":        {"ConcurrentUse"},
	"keeps":                {"NothingIsKept"},
	"refuses":              {"UnavailableIsClassified"},
	"never returns":        {"ReturnsByTheDeadline"},
	"sends anyway":         {"EndedContextSendsNothing"},
	"sends later":          {"CancelledCallTellsTheTruth"},
	"thinks nothing of it": {"LostAnswerIsUnknown"},
	"tries again":          {"NoRetryInside"},
	"assumes":              {"CrashPoints"},
	"closes once":          {"CloseTwice"},
	"ignores close":        {"CloseUnderLoad"},
	"leaks":                {"NoGoroutineIsLeft"},
}

func TestEachRuleHasAFlawOfItsOwn(t *testing.T) {
	t.Parallel()
	for _, r := range rules {
		own := false
		for _, found := range flaws {
			own = own || slices.Equal(found, []string{r.name})
		}
		if !own {
			t.Errorf("no flaw fails %s alone", r.name)
		}
	}
}

func TestSinkWithAFlaw(t *testing.T) {
	flaw := os.Getenv(brokenVariable)
	if flaw == "" {
		flaw = "none"
	}
	if flaw == "ignores close" {
		patience = 2 * time.Second // calls that never end are waited for
	}
	Run(t, Harness{New: func(testing.TB) Destination {
		p := &place{}
		return Destination{
			Open: func(testing.TB) core.Sink {
				f := &flawed{flaw: flaw, place: p, closing: make(chan struct{})}
				if flaw == "plain" {
					return undeclared{f}
				}
				return f
			},
			Received: p.received,
			TooLarge: 4000,
			Spoil:    []func(*core.Event){func(e *core.Event) { e.Type = "" }},
			Reject:   []func(*core.Event){func(e *core.Event) { e.Type = "" }},
			Refuse: func(testing.TB) (func(*core.Event), func()) {
				p.set(&p.refusing, true)
				return func(e *core.Event) { e.Tenant = "refused" }, func() { p.set(&p.refusing, false) }
			},
			Steps: []Step{
				{Name: "connect", Break: p.breaker("connect")},
				{Name: "send", Stores: true, Repeats: flaw != "never repeats", Break: p.breaker("send")},
			},
			Cut: func(testing.TB) func() {
				p.set(&p.cut, true)
				return func() { p.set(&p.cut, false) }
			},
			Freeze: func(testing.TB) func() {
				p.set(&p.frozen, true)
				return func() { p.set(&p.frozen, false) }
			},
		}
	}})
}

// Each flaw is run in a process of its own, since a failed subtest can't be
// taken back.
func TestEachFlawFailsItsOwnRule(t *testing.T) {
	t.Parallel()
	if os.Getenv(brokenVariable) != "" {
		t.Skip("this is the inner run")
	}
	failed := regexp.MustCompile(`--- FAIL: TestSinkWithAFlaw/(\w+)`)
	for _, flaw := range slices.Sorted(maps.Keys(flaws)) {
		t.Run(flaw, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSinkWithAFlaw$", "-test.timeout=2m")
			cmd.Env = append(os.Environ(), brokenVariable+"="+flaw)
			out, err := cmd.CombinedOutput()
			var got []string
			for _, m := range failed.FindAllStringSubmatch(string(out), -1) {
				if !slices.Contains(got, m[1]) {
					got = append(got, m[1])
				}
			}
			if !slices.Equal(got, flaws[flaw]) {
				t.Errorf("failed rules: %v, want %v\n%s", got, flaws[flaw], out)
			}
			if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
				t.Error(err)
			}
		})
	}
}

// place is a destination in memory.
type place struct {
	mu          sync.Mutex
	messages    []Message
	cut, frozen bool
	refusing    bool
	// step is the one that fails next, at the moment of when.
	step string
	when When
}

// breaker lets a step fail once.
func (p *place) breaker(step string) func(testing.TB, When) func() bool {
	return func(_ testing.TB, when When) func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.step, p.when = step, when
		return func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			struck := p.step == ""
			p.step = ""
			return struck
		}
	}
}

// fails tells whether the step fails now, and at which moment.
func (p *place) fails(step string) (When, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.step != step {
		return 0, false
	}
	p.step = ""
	return p.when, true
}

func (p *place) set(flag *bool, v bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*flag = v
}

func (p *place) is(flag *bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return *flag
}

func (p *place) received(testing.TB) []Message {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.messages)
}

func (p *place) store(front bool, m ...Message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if front {
		p.messages = append(slices.Clone(m), p.messages...)
		return
	}
	p.messages = append(p.messages, m...)
}

// flawed is a sink into a place, right but for its flaw.
type flawed struct {
	flaw    string
	place   *place
	once    sync.Once
	closing chan struct{} // closed when Close begins
	calls   sync.WaitGroup
	busy    atomic.Int32
	mu      sync.Mutex
	done    bool
	choked  bool
	given   map[string]bool
}

// undeclared hides what a sink declares.
type undeclared struct{ core.Sink }

const maxBytes = 3000

func (f *flawed) Capabilities() core.Capabilities {
	return core.Capabilities{PrefixPerKey: true, MaxEventBytes: maxBytes, MaxBatch: 200, NoRepeat: f.flaw == "never repeats"}
}

func (f *flawed) begin(leases []core.Lease) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.flaw == "ignores close" && strings.HasPrefix(leases[0].Event.AggregateID, "load-") {
		f.calls.Add(1)
		return true
	}
	if f.done {
		return false
	}
	f.calls.Add(1)
	return true
}

func (f *flawed) Deliver(ctx context.Context, leases []core.Lease) []core.Result {
	results := make([]core.Result, len(leases))
	fill := func(o core.Outcome, err error) []core.Result {
		for i := range results {
			results[i] = core.Result{Outcome: o, Err: err}
		}
		return results
	}
	if len(leases) == 0 {
		if f.flaw == "answers nobody" {
			return make([]core.Result, 1)
		}
		return results
	}
	if f.flaw == "one at a time" && strings.HasPrefix(leases[0].Event.AggregateID, "caller-") {
		if f.busy.Add(1) > 1 {
			defer f.busy.Add(-1)
			return fill(core.Refused, errors.New("busy"))
		}
		defer f.busy.Add(-1)
		time.Sleep(time.Millisecond)
	}
	if !f.begin(leases) {
		return fill(core.Unavailable, errors.New("closed"))
	}
	defer f.calls.Done()
	if f.flaw == "forgets" && leases[0].Event.AggregateID == "size-2-0" {
		leases, results = leases[:1], results[:1]
	}
	if ctx.Err() != nil && f.flaw != "sends anyway" {
		return fill(core.NotAttempted, ctx.Err())
	}
	if f.place.is(&f.place.cut) {
		if f.flaw == "refuses" {
			return fill(core.Refused, errors.New("no connection"))
		}
		return fill(core.Unavailable, errors.New("no connection"))
	}
	if f.place.is(&f.place.frozen) {
		if f.flaw == "never returns" && len(leases) == 20 {
			time.Sleep(2*time.Second + slack)
		}
		select {
		case <-ctx.Done():
		case <-f.closing:
		}
		return fill(core.Unknown, errors.New("no answer"))
	}
	if _, broken := f.place.fails("connect"); broken {
		return fill(core.Unavailable, errors.New("connection lost"))
	}
	when, broken := f.place.fails("send")
	if broken && when == Before {
		return fill(core.Unavailable, errors.New("connection lost"))
	}
	if broken && when == During {
		if f.flaw == "tries again" {
			f.deliver(ctx, leases, results)
			return results
		}
		f.deliver(ctx, leases[:len(leases)/2], results)
		return fill(core.Unknown, errors.New("no answer"))
	}
	f.deliver(ctx, leases, results)
	if broken && f.flaw == "thinks nothing of it" && strings.HasPrefix(leases[0].Event.AggregateID, "lost-") {
		return fill(core.Unavailable, errors.New("no answer"))
	}
	if broken && f.flaw != "tries again" {
		return fill(core.Unknown, errors.New("no answer"))
	}
	return results
}

// is tells whether the sink has the flaw and the lease's key begins so.
func (f *flawed) is(flaw string, l *core.Lease, key string) bool {
	return f.flaw == flaw && strings.HasPrefix(l.Event.AggregateID, key)
}

// bad is what is wrong with an event, or nil.
func (f *flawed) bad(l *core.Lease, limit int) *core.Result {
	ev := &l.Event
	if f.flaw == "takes oversizes" && ev.Size() < 4000 {
		limit = 4000
	}
	if f.flaw == "hopes" && ev.Type == "" && ev.AggregateID == "rejected" {
		return &core.Result{Outcome: core.Refused, Err: errors.New("the type is empty")}
	}
	switch {
	case ev.Size() > limit:
		return &core.Result{Outcome: core.Rejected, Err: errors.New("too large")}
	case ev.Type == "":
		return &core.Result{Outcome: core.Rejected, Err: errors.New("the type is empty")}
	case ev.Tenant == "refused" && f.place.is(&f.place.refusing):
		r := core.Result{Outcome: core.Refused, Err: errors.New("not now")}
		if f.is("gives up", l, "refused") {
			r.Outcome = core.Rejected
		}
		return &r
	}
	return nil
}

// twice tells whether the event was stored by this sink before.
func (f *flawed) twice(l *core.Lease) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.given == nil {
		f.given = map[string]bool{}
	}
	before := f.given[l.Event.ID]
	f.given[l.Event.ID] = true
	return before
}

func (f *flawed) deliver(ctx context.Context, leases []core.Lease, results []core.Result) {
	failed := map[string]bool{}
	var out []Message
	large := slices.ContainsFunc(leases, func(l core.Lease) bool { return l.Event.Size() >= 4000 })
	beside := large && strings.HasPrefix(leases[0].Event.AggregateID, "good-")
	if f.flaw == "stops earlier" || f.flaw == "holds what precedes" {
		for _, l := range leases {
			failed[l.Event.AggregateID] = failed[l.Event.AggregateID] || l.Event.Type == "" && strings.HasPrefix(l.Event.AggregateID, "spoilt-")
		}
	}
	for i := range leases {
		l := &leases[i]
		ev := &l.Event
		if f.flaw == "all or nothing" && large || f.flaw == "one bad, all bad" && beside {
			results[i] = core.Result{Outcome: core.Rejected, Err: errors.New("too large")}
			continue
		}
		if bad := f.bad(l, maxBytes); bad != nil {
			results[i], failed[ev.AggregateID] = *bad, true
			f.choke(ev)
			continue
		}
		switch {
		case failed[ev.AggregateID] && f.flaw != "goes on" && !f.is("sends what follows", l, "failing"):
			continue
		case f.flaw == "sends later" && ctx.Done() != nil && len(leases) == 20 && len(ev.Payload) == 1000 && i == 3:
			f.place.store(false, message(ev))
			continue
		case f.choking(), f.flaw == "takes only some" && i >= 400:
			results[i] = core.Result{Outcome: core.Refused, Err: errors.New("no")}
			continue
		case f.is("takes nothing twice", l, "again") && f.twice(l):
			results[i] = core.Result{Outcome: core.Rejected, Err: errors.New("I have it")}
			continue
		case f.flaw == "assumes" && l.Redelivered, f.flaw == "never repeats" && l.Redelivered:
			results[i] = core.Result{Outcome: core.Delivered}
			continue
		}
		results[i] = core.Result{Outcome: core.Delivered, Receipt: ev.ID}
		if f.flaw == "loses" && i == 70 && len(leases) == 100 {
			continue
		}
		out = append(out, message(ev))
		m := &out[len(out)-1]
		switch {
		case f.flaw == "repeats" && i == 70 && len(leases) == 100:
			out = append(out, message(ev))
		case f.flaw == "another body" && i == 70 && len(leases) == 100:
			m.Payload = []byte("{}")
		case f.flaw == "keeps" && len(ev.Payload) == 2000:
			m.Payload = ev.Payload
		case f.flaw == "puts retries first" && l.Attempt > 1 && ev.AggregateID == "ordered":
			f.place.store(true, *m)
			out = out[:len(out)-1]
		}
	}
	f.place.store(f.flaw == "reverses" && strings.HasPrefix(leases[0].Event.AggregateID, "key-"), out...)
	if f.flaw == "leaks" {
		go func() { select {} }()
	}
}

// choke notes a huge event.
func (f *flawed) choke(ev *core.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.choked = f.choked || f.flaw == "chokes" && len(ev.Payload) == hugeEvent
}

func (f *flawed) choking() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.choked
}

func message(ev *core.Event) Message {
	return Message{ID: ev.ID, Key: ev.AggregateID, Payload: bytes.Clone(ev.Payload)}
}

func (f *flawed) Close(context.Context) error {
	f.mu.Lock()
	again := f.done
	f.done = true
	f.mu.Unlock()
	if again && f.flaw == "closes once" && len(f.place.received(nil)) == 1 {
		return errors.New("already closed")
	}
	if again {
		return nil
	}
	f.once.Do(func() { close(f.closing) })
	if f.flaw != "ignores close" {
		f.calls.Wait()
	}
	return nil
}
