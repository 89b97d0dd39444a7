package amqp

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/gooutbox/outbox/core"
)

// script is a broker that answers as chance has it. It takes messages in the
// order in which they were published, as a channel does.
type script struct {
	t    *testing.T
	rand *rand.Rand
	// stored are the ids of the messages that it holds.
	stored  []string
	refuse  map[string]string // id → what becomes of it: "nack", "return", "close"
	gone    map[string]bool   // exchanges that don't exist
	careful map[string]bool
	cancel  context.CancelFunc

	lines  int
	busy   map[string]bool // keys with a message that has no answer
	failed map[string]bool // keys of which something was not delivered
	alarm  error
	killed error
}

type scriptLine struct {
	s      *script
	tag    uint64
	queue  []confirmation // answers that are on their way
	keys   map[uint64]string
	back   map[string]string
	closed *amqp091.Error
	lost   bool
}

func (s *script) line(context.Context) (line, error) {
	if s.killed != nil {
		return nil, core.MarkUnavailable(s.killed)
	}
	s.lines++
	return &scriptLine{s: s, keys: map[uint64]string{}, back: map[string]string{}}, nil
}

func (s *script) release(line) {}

func (s *script) exchange(_ context.Context, name string) (*exchangeState, error) {
	if s.gone[name] {
		return nil, errors.New("no such exchange")
	}
	return &exchangeState{careful: s.careful[name]}, nil
}

func (s *script) learn(name string, _ error)      { s.gone[name] = true }
func (s *script) trust(name string, trusted bool) { s.careful[name] = !trusted }
func (s *script) blocked() error                  { return s.alarm }
func (s *script) dead() bool                      { return s.killed != nil }
func (s *script) reason() error                   { return s.killed }
func (s *script) kill(err error)                  { s.killed = err }
func (s *script) frame() int                      { return frameSize }

func (l *scriptLine) publish(m *message) (uint64, error) {
	s, id := l.s, m.publishing.MessageId
	key := m.publishing.Headers["cloudEvents:partitionkey"].(string)
	if l.lost {
		return 0, amqp091.ErrClosed
	}
	if s.busy[key] {
		s.t.Fatalf("%s is sent while another event of %s has no answer", id, key)
	}
	if s.failed[key] {
		s.t.Fatalf("%s is sent after an event of %s failed", id, key)
	}
	l.tag++
	l.keys[l.tag] = key
	s.busy[key] = true
	switch s.rand.IntN(60) {
	case 0: // the channel ends for no reason that concerns this message
		l.end(&amqp091.Error{Code: amqp091.PreconditionFailed, Reason: "for no reason", Server: true})
		return l.tag, nil
	case 1:
		s.killed = errors.New("connection reset")
		l.end(nil)
		if s.rand.IntN(2) == 0 { // the message had arrived
			s.stored = append(s.stored, id)
		}
		return l.tag, nil
	case 2:
		s.alarm = core.MarkUnavailable(errors.New("low on memory"))
	case 3:
		s.cancel()
	}
	switch s.refuse[id] {
	case "nack":
		l.answer(false)
	case "return":
		l.back[id] = "312 NO_ROUTE"
		l.answer(true)
	case "close":
		l.end(&amqp091.Error{Code: amqp091.AccessRefused, Reason: "ACCESS_REFUSED - cannot publish to internal exchange '" + m.exchange + "' in vhost '/'", Server: true})
	default:
		s.stored = append(s.stored, id)
		l.answer(true)
	}
	return l.tag, nil
}

func (l *scriptLine) answer(ack bool) { l.queue = append(l.queue, confirmation{l.tag, ack}) }

// end closes the channel: some answers that are on their way get lost.
func (l *scriptLine) end(why *amqp091.Error) {
	l.lost, l.closed = true, why
	l.queue = l.queue[:l.s.rand.IntN(len(l.queue)+1)]
}

func (l *scriptLine) poll() (confirmation, bool, bool) {
	if len(l.queue) == 0 || l.s.rand.IntN(2) == 0 {
		return confirmation{}, false, l.lost && len(l.queue) == 0
	}
	return l.take(), true, false
}

func (l *scriptLine) next(ctx context.Context) (confirmation, error) {
	if ctx.Err() != nil && l.s.rand.IntN(2) == 0 { // whatever is on its way
		return confirmation{}, ctx.Err()
	}
	if len(l.queue) > 0 {
		return l.take(), nil
	}
	if l.lost {
		return confirmation{}, errLost
	}
	<-ctx.Done() // nothing is under way: a call that waits here would hang
	return confirmation{}, ctx.Err()
}

// take is an answer: of those that are on their way any may come first.
func (l *scriptLine) take() confirmation {
	i := l.s.rand.IntN(len(l.queue))
	answer := l.queue[i]
	l.queue = slices.Delete(l.queue, i, i+1)
	key := l.keys[answer.tag]
	delete(l.s.busy, key)
	return answer
}

func (l *scriptLine) returned(id string) (string, bool) {
	reason, ok := l.back[id]
	return reason, ok
}

func (l *scriptLine) reason() *amqp091.Error { return l.closed }

type nothing struct{}

func (nothing) hasten() {}

// Whatever the broker answers, and whenever it ends: at most one message of a
// key has no answer, nothing of a key follows a failure, and the answers are
// true.
func TestPlanKeepsOrderWhateverTheBrokerAnswers(t *testing.T) {
	t.Parallel()
	s := newSink(t, Config{URLs: []string{"amqp://localhost"}, Exchange: "{{ .Aggregate }}", MaxMessageBytes: 1000})
	had := map[core.Outcome]int{}
	for seed := range uint64(3_000) {
		for _, r := range run(t, s, seed) {
			had[r.Outcome]++
		}
	}
	if len(had) != 6 { // all but throttled
		t.Errorf("the outcomes were %v", had)
	}
}

func run(t *testing.T, s *Sink, seed uint64) []core.Result {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // chance for a test
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	b := &script{
		t: t, rand: r, cancel: cancel, refuse: map[string]string{}, gone: map[string]bool{}, careful: map[string]bool{},
		busy: map[string]bool{}, failed: map[string]bool{},
	}
	leases := make([]core.Lease, 1+r.IntN(40))
	exchanges := []string{"x", "y", "gone", "internal"}
	b.gone["gone"] = true
	for i := range leases {
		id := fmt.Sprint("id-", i)
		if r.IntN(20) == 0 {
			id = "id-0" // an id that is there twice
		}
		l := lease(id, fmt.Sprint("key-", r.IntN(8)))
		l.Event.Aggregate = exchanges[min(r.IntN(20), 3)]
		switch {
		case l.Event.Aggregate == "internal" && r.IntN(4) > 0:
			l.Event.Aggregate = "x"
		case r.IntN(30) == 0:
			l.Event.Payload = make([]byte, 1001)
		}
		if l.Event.Aggregate == "internal" {
			b.refuse[id] = "close"
		} else if id != "id-0" {
			b.refuse[id] = []string{"nack", "return", "", "", "", "", "", ""}[r.IntN(8)]
		}
		leases[i] = l
	}
	results := make([]core.Result, len(leases))
	d := newDelivery(s, leases, results)
	failing := &failures{d: d, b: b}
	d.run(ctx, failing, &writer{sock: nothing{}})
	d.finish()
	checkRun(t, seed, b, leases, results)
	return results
}

// failures tells the script of each key that failed, before the next message.
type failures struct {
	d *delivery
	b *script
}

func (f *failures) note() {
	for i, r := range f.d.results {
		if r.Outcome != core.Delivered && r.Outcome != core.NotAttempted {
			f.b.failed[f.d.leases[i].Event.AggregateID] = true
		}
	}
}

func (f *failures) line(ctx context.Context) (line, error) { f.note(); return f.b.line(ctx) }
func (f *failures) release(l line)                         { f.b.release(l) }
func (f *failures) exchange(ctx context.Context, name string) (*exchangeState, error) {
	f.note()
	return f.b.exchange(ctx, name)
}
func (f *failures) learn(name string, err error)    { f.b.learn(name, err) }
func (f *failures) trust(name string, trusted bool) { f.b.trust(name, trusted) }
func (f *failures) blocked() error                  { return f.b.blocked() }
func (f *failures) dead() bool                      { return f.b.dead() }
func (f *failures) reason() error                   { return f.b.reason() }
func (f *failures) kill(err error)                  { f.b.kill(err) }
func (f *failures) frame() int                      { return f.b.frame() }

func checkRun(t *testing.T, seed uint64, b *script, leases []core.Lease, results []core.Result) {
	t.Helper()
	stopped := map[string]bool{}
	for i, r := range results {
		id, key := leases[i].Event.ID, leases[i].Event.AggregateID
		if stopped[key] && r.Outcome != core.NotAttempted {
			t.Fatalf("seed %d: %s is %v after an earlier event of %s was not delivered", seed, id, r.Outcome, key)
		}
		if r.Outcome != core.Delivered {
			stopped[key] = true
			if r.Err == nil {
				t.Fatalf("seed %d: %s is %v without a reason", seed, id, r.Outcome)
			}
		}
		if id == "id-0" {
			continue
		}
		there := slices.Contains(b.stored, id)
		switch r.Outcome {
		case core.Delivered:
			if !there {
				t.Fatalf("seed %d: %s was reported as delivered and isn't there", seed, id)
			}
		case core.Unknown:
		default:
			if there {
				t.Fatalf("seed %d: %s is there and was reported as %v (%v)", seed, id, r.Outcome, r.Err)
			}
		}
	}
}
