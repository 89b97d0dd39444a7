package relay_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/relay"
	"github.com/gooutbox/outbox/store/memory"
)

const lease = 15 * time.Second

// kit is a store, a scripted sink and a log book, in a synctest bubble.
type kit struct {
	t      *testing.T
	faults *faults
	store  *memory.Store
	sink   *script
	log    *logBook
}

// inBubble runs a test in a bubble of its own.
func inBubble(t *testing.T, test func(t *testing.T, k *kit)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &faults{fail: map[string]error{}, lose: map[string]int{}, hits: map[string]int{}}
		k := &kit{t: t, faults: f, sink: newScript(t), log: &logBook{}}
		k.store = memory.New(memory.Config{Fault: f.check, Lost: f.answer})
		test(t, k)
	})
}

// config is that of a relay with one route, "r", to the kit's sink.
func (k *kit) config() relay.Config {
	return relay.Config{
		Log:    k.store,
		Sinks:  map[string]core.Sink{"s": k.sink},
		Routes: []relay.Route{{Name: "r", Sink: "s"}},
		Logger: slog.New(k.log),
	}
}

// start runs a relay with the kit's configuration, changed by edits.
func (k *kit) start(edits ...func(*relay.Config)) *running {
	k.t.Helper()
	cfg := k.config()
	for _, edit := range edits {
		edit(&cfg)
	}
	r, err := relay.New(cfg)
	if err != nil {
		k.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(k.t.Context())
	run := &running{Relay: r, t: k.t, cancel: cancel, done: make(chan error, 1)}
	go func() { run.done <- r.Run(ctx) }()
	k.t.Cleanup(cancel)
	return run
}

// running is a relay at work.
type running struct {
	*relay.Relay
	t      *testing.T
	cancel context.CancelFunc
	done   chan error
}

// stop drains the relay, which must go well.
func (r *running) stop() {
	r.t.Helper()
	if err := r.end(); err != nil {
		r.t.Errorf("stopping: %v", err)
	}
}

func (r *running) end() error {
	r.cancel()
	return <-r.done
}

// route is the status of the only route.
func (r *running) route() relay.RouteStatus { return r.Status().Routes[0] }

// event makes an event whose id tells key and number: "a1" is of key "a".
func event(id string) core.Event {
	return core.Event{ID: id, AggregateID: strings.TrimRight(id, "0123456789"), Type: "t", Payload: []byte(`{}`)}
}

func (k *kit) append(ids ...string) {
	k.t.Helper()
	events := make([]core.Event, len(ids))
	for i, id := range ids {
		events[i] = event(id)
	}
	k.appendEvents(events...)
}

func (k *kit) appendEvents(events ...core.Event) {
	k.t.Helper()
	err := k.store.InTransaction(k.t.Context(), func(ctx context.Context) error { return k.store.Append(ctx, events...) })
	if err != nil {
		k.t.Fatal(err)
	}
}

// numbered returns ids "<key>1" to "<key>n".
func numbered(key string, n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("%s%d", key, i+1)
	}
	return ids
}

// unsettled asks the store how many events the cursor has still to settle.
func (k *kit) unsettled() int {
	k.t.Helper()
	lag, err := k.store.Lag(k.t.Context(), "r")
	if err != nil {
		k.t.Fatal(err)
	}
	return int(lag.Events)
}

// faults lets operations of the store fail or hang.
type faults struct {
	mu   sync.Mutex
	fail map[string]error
	lose map[string]int // how many answers of an operation get lost
	hits map[string]int
	hook func(op string) error
}

func (f *faults) check(op string) error {
	f.mu.Lock()
	f.hits[op]++
	err, hook := f.fail[op], f.hook
	f.mu.Unlock()
	if err == nil && hook != nil {
		err = hook(op)
	}
	return err
}

// answer loses the answer of an operation that has taken effect.
func (f *faults) answer(op string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lose[op] == 0 {
		return nil
	}
	f.lose[op]--
	return errors.New("no answer")
}

// loseNext lets the next n answers of an operation get lost.
func (f *faults) loseNext(n int, op string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lose[op] = n
}

// set lets ops fail with err, or work again.
func (f *faults) set(err error, ops ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, op := range ops {
		f.fail[op] = err
	}
}

func (f *faults) onEach(hook func(op string) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hook = hook
}

func (f *faults) count(op string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hits[op]
}

// writes are the operations of a cursor that need the store.
var writes = []string{memory.OpRead, memory.OpSave, memory.OpRenew, memory.OpSuspect, memory.OpPark}

// attempt is one event of one call.
type attempt struct {
	lease core.Lease
	at    time.Time
	call  int // number of the call
	with  int // events of the call
}

// script is a sink that answers as it is told and checks what it is given.
type script struct {
	t    *testing.T
	caps core.Capabilities
	// reply answers one event; n counts its tries from 1. nil delivers all. A
	// running relay's is changed by answers.
	reply func(l core.Lease, n int) core.Result
	// before is called before the events of a call are looked at.
	before func(ctx context.Context, leases []core.Lease)
	// answer, where not nil, changes the results of a call.
	answer func([]core.Result) []core.Result

	mu        sync.Mutex
	calls     int
	busy      map[string]bool
	tries     map[string]int
	attempts  []attempt
	delivered []string
}

func newScript(t *testing.T) *script {
	return &script{t: t, busy: map[string]bool{}, tries: map[string]int{}}
}

func (s *script) Capabilities() core.Capabilities { return s.caps }
func (s *script) Close(context.Context) error     { return nil }

func (s *script) Deliver(ctx context.Context, leases []core.Lease) []core.Result {
	mine := s.begin(leases)
	defer s.end(mine)
	if s.before != nil {
		s.before(ctx, leases)
	}
	results := make([]core.Result, len(leases))
	stopped := map[string]bool{}
	for i, l := range leases {
		key := l.Event.AggregateID
		if stopped[key] {
			continue // not attempted: the order rule
		}
		s.mu.Lock()
		s.tries[l.Event.ID]++
		n, reply := s.tries[l.Event.ID], s.reply
		s.mu.Unlock()
		results[i] = core.Result{Outcome: core.Delivered}
		if reply != nil {
			results[i] = reply(l, n)
		}
		if results[i].Outcome == core.Delivered {
			s.mu.Lock()
			s.delivered = append(s.delivered, l.Event.ID)
			s.mu.Unlock()
		} else {
			stopped[key] = true
		}
	}
	if s.answer != nil {
		results = s.answer(results)
	}
	return results
}

// answers changes how events are answered.
func (s *script) answers(reply func(l core.Lease, n int) core.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reply = reply
}

// begin checks the rules of core.Sink and notes the attempts.
func (s *script) begin(leases []core.Lease) (keys []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	for _, l := range leases {
		key := l.Event.AggregateID
		if !slices.Contains(keys, key) {
			if s.busy[key] {
				s.t.Errorf("two calls with key %q at the same time", key)
			}
			keys = append(keys, key)
			s.busy[key] = true
		} else if !s.caps.PrefixPerKey {
			s.t.Errorf("two events of key %q in one call", key)
		}
		s.attempts = append(s.attempts, attempt{lease: l, at: time.Now(), call: s.calls, with: len(leases)})
	}
	if s.caps.MaxBatch > 0 && len(leases) > s.caps.MaxBatch {
		s.t.Errorf("%d events in one call, the sink takes %d", len(leases), s.caps.MaxBatch)
	}
	return keys
}

func (s *script) end(keys []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		s.busy[key] = false
	}
}

// got returns the ids that were delivered so far, in order.
func (s *script) got() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.delivered)
}

func (s *script) callCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// all returns the attempts so far.
func (s *script) all() []attempt {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.attempts)
}

// of returns the attempts with an event so far.
func (s *script) of(id string) (as []attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.attempts {
		if a.lease.Event.ID == id {
			as = append(as, a)
		}
	}
	return as
}

func refused(reason string) core.Result {
	return core.Result{Outcome: core.Refused, Err: fmt.Errorf("%s", reason)}
}

func outcome(o core.Outcome) core.Result {
	return core.Result{Outcome: o, Err: fmt.Errorf("scripted: %v", o)}
}

// logBook collects what was logged.
type logBook struct {
	mu    sync.Mutex
	lines []slog.Record
}

func (b *logBook) Enabled(context.Context, slog.Level) bool { return true }
func (b *logBook) WithAttrs([]slog.Attr) slog.Handler       { return b }
func (b *logBook) WithGroup(string) slog.Handler            { return b }

func (b *logBook) Handle(_ context.Context, r slog.Record) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, r)
	return nil
}

// with counts the lines of a level that contain text.
func (b *logBook) with(level slog.Level, text string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.lines {
		if r.Level == level && strings.Contains(r.Message, text) {
			n++
		}
	}
	return n
}

// all counts the lines of at least a level.
func (b *logBook) all(level slog.Level) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.lines {
		if r.Level >= level {
			n++
		}
	}
	return n
}

// settle lets everything run until it waits for time or for something new.
func settle() { synctest.Wait() }

// pass lets time pass and everything that is due then happen.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func equalIDs(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// between checks that d is between low and high.
func between(t *testing.T, what string, d, low, high time.Duration) {
	t.Helper()
	if d < low || d > high {
		t.Errorf("%s: %v, want between %v and %v", what, d, low, high)
	}
}
