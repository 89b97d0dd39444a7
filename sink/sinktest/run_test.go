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
	"testing"
	"time"

	"github.com/gooutbox/outbox/core"
)

// brokenVariable names the flaw of the sink that TestSinkWithAFlaw runs on.
const brokenVariable = "SINKTEST_FLAW"

// flaws, and the rules that have to notice. Others must not fail.
var flaws = map[string][]string{
	"none":            nil,
	"loses":           {"ConfirmedIsThere"},
	"repeats":         {"ConfirmedIsThere"},
	"forgets":         {"OneResultPerLease"},
	"goes on":         {"KeyStopsAtFirstFailure", "BadEventStopsOnlyLaterOnes"},
	"all or nothing":  {"BadEventFailsAlone", "KeyStopsAtFirstFailure"},
	"stops earlier":   {"BadEventStopsOnlyLaterOnes"},
	"reverses":        {"OrderWithinKey"},
	"keeps":           {"NothingIsKept"},
	"refuses":         {"UnavailableIsClassified"},
	"never returns":   {"ReturnsByTheDeadline"},
	"sends anyway":    {"EndedContextSendsNothing"},
	"sends later":     {"CancelledCallTellsTheTruth"},
	"closes once":     {"CloseTwice"},
	"ignores close":   {"CloseUnderLoad"},
	"leaks":           {"NoGoroutineIsLeft"},
	"takes oversizes": {"CapabilitiesAreHonoured"},
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
				return &flawed{flaw: flaw, place: p, closed: make(chan struct{}), closing: make(chan struct{})}
			},
			Received: p.received,
			TooLarge: 4000,
			Spoil:    []func(*core.Event){func(e *core.Event) { e.Type = "" }},
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
				got = append(got, m[1])
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
	closed  chan struct{} // closed when all calls have ended
	calls   sync.WaitGroup
	mu      sync.Mutex
	done    bool
}

const maxBytes = 3000

func (f *flawed) Capabilities() core.Capabilities {
	return core.Capabilities{PrefixPerKey: true, MaxEventBytes: maxBytes, MaxBatch: 200}
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
		return results
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
	f.deliver(ctx, leases, results)
	return results
}

func (f *flawed) deliver(ctx context.Context, leases []core.Lease, results []core.Result) {
	failed := map[string]bool{}
	var out []Message
	large := slices.ContainsFunc(leases, func(l core.Lease) bool { return l.Event.Size() >= 4000 })
	if f.flaw == "stops earlier" {
		for _, l := range leases {
			failed[l.Event.AggregateID] = failed[l.Event.AggregateID] || l.Event.Type == ""
		}
	}
	for i, l := range leases {
		ev := &l.Event
		limit := maxBytes
		if f.flaw == "takes oversizes" && ev.Size() < 4000 {
			limit = 4000
		}
		switch {
		case ev.Size() > limit || f.flaw == "all or nothing" && large:
			results[i] = core.Result{Outcome: core.Rejected, Err: errors.New("too large")}
			failed[ev.AggregateID] = true
			continue
		case ev.Type == "":
			results[i] = core.Result{Outcome: core.Rejected, Err: errors.New("the type is empty")}
			failed[ev.AggregateID] = true
			continue
		case failed[ev.AggregateID] && f.flaw != "goes on":
			continue
		case f.flaw == "sends later" && ctx.Done() != nil && len(leases) == 20 && len(ev.Payload) == 1000 && i == 3:
			f.place.store(false, message(ev))
			continue
		}
		results[i] = core.Result{Outcome: core.Delivered, Receipt: ev.ID}
		if f.flaw == "loses" && i == 70 && len(leases) == 100 {
			continue
		}
		out = append(out, message(ev))
		if f.flaw == "repeats" && i == 70 && len(leases) == 100 {
			out = append(out, message(ev))
		}
		if f.flaw == "keeps" && len(ev.Payload) == 2000 {
			out[len(out)-1].Payload = ev.Payload
		}
	}
	f.place.store(f.flaw == "reverses", out...)
	if f.flaw == "leaks" {
		go func() { select {} }()
	}
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
