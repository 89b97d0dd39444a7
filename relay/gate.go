package relay

import (
	"time"

	"github.com/gooutbox/outbox/core"
)

// roundsBeforeSingle is after how many rounds of an outage events are sent one
// by one, to find out whether it is the sink or one event.
const roundsBeforeSingle = 3

// gate holds back all calls of a route while its sink takes nothing, and says
// how many events a call may have. It is part of a term and guarded by its
// lock.
//
// In an outage one call at a time is tried after each wait, whatever calls from
// before are still under way: one may take as long as its timeout. After an outage of
// several rounds, and after terms that ended without progress, calls begin with
// one event and double from there.
type gate struct {
	most    int // events a call at best
	limit   int // events a call at present
	until   time.Time
	rounds  int // of the outage so far, 0 when there is none
	waits   waits
	backoff Backoff

	round  uint64 // number of the last round that any outage had
	trying int    // calls under way that began since it did
	// late: the answer that is being looked at is of a call that began before
	// the round did. Where that failed it tells nothing of now.
	late bool
}

func newGate(most int, b Backoff) gate { return gate{most: most, limit: most, backoff: b} }

// open tells whether a call may begin.
func (g *gate) open(now time.Time) bool { return !now.Before(g.until) && g.free() }

// free tells whether a call may begin once the wait is over.
func (g *gate) free() bool { return g.rounds == 0 || g.trying == 0 }

// begin is told of each call that begins, and returns what end is to be given.
func (g *gate) begin() (round uint64) {
	g.trying++
	return g.round
}

// end is told of each call that ended.
func (g *gate) end(round uint64) {
	if round == g.round {
		g.trying--
	}
}

// look is told of whose answer the next calls of shut are.
func (g *gate) look(round uint64) { g.late = round != g.round }

// shut begins another round of an outage, unless this one is being waited for
// already, or the answer is a late one.
func (g *gate) shut(now time.Time) {
	if g.late || now.Before(g.until) {
		return
	}
	g.round++
	g.trying = 0
	if g.rounds == 0 {
		g.waits = g.backoff.start()
	}
	g.rounds++
	g.until = now.Add(g.waits.next())
	if g.rounds >= roundsBeforeSingle {
		g.limit = 1
	}
}

// throttle waits as long as the sink asked, or as after an outage if it didn't
// say.
func (g *gate) throttle(now time.Time, after time.Duration) {
	if after <= 0 {
		after = g.backoff.Initial
	}
	if until := now.Add(after); until.After(g.until) {
		g.until = until
	}
}

// lift ends an outage.
func (g *gate) lift() { g.rounds, g.until = 0, time.Time{} }

// widen lets calls have more events again.
func (g *gate) widen() { g.limit = min(2*g.limit, g.most) }

// tally counts the outcomes of a call.
type tally [core.Unknown + 1]int

func tallyOf(results []core.Result) (t tally) {
	for i := range results {
		t[results[i].Outcome]++
	}
	return t
}

// answersOf is tallyOf for the gate: where the sink throttles a part of what it
// sends to, it has answered about the event, as with a refusal.
func answersOf(results []core.Result) (t tally) {
	for i := range results {
		if r := &results[i]; throttlesPart(r) {
			t[core.Refused]++
		} else {
			t[r.Outcome]++
		}
	}
	return t
}

// throttlesPart tells whether the sink asks to spare a tenant or a domain.
func throttlesPart(r *core.Result) bool { return r.Outcome == core.Throttled && !r.ThrottlesAll() }

// passGate lets the gate see the outcomes of a call that began in a round. It is
// called before the single events are looked at. The lock is held.
func (t *term) passGate(now time.Time, n tally, round uint64) {
	t.gate.look(round)
	if n[core.Delivered] > 0 {
		t.passes++
	}
	answered := n[core.Delivered]
	if t.gate.rounds == 0 {
		// An answer about one event shows that the sink as a whole answers; but
		// in an outage the sink may know it without asking anybody.
		answered += n[core.Refused] + n[core.Rejected]
	}
	if answered == 0 {
		if t.gate.rounds > 0 && n[core.Refused]+n[core.Rejected] == 0 {
			t.gate.shut(now)
		}
		return
	}
	if t.gate.rounds > 0 {
		t.gate.lift()
	}
	t.route.outage.ok(opDeliver)
	if n[core.Throttled] == 0 && now.Sub(t.throttled) > throttleQuiet {
		t.route.outage.ok(opThrottle)
	}
	if n[core.Unavailable] == 0 && !t.careful {
		t.gate.widen()
	}
}

// shutGate begins a round of an outage. The lock is held.
func (t *term) shutGate(now time.Time, reason error) {
	if t.gate.late {
		return
	}
	t.gate.shut(now)
	t.route.outage.failed(opDeliver, reason, "retry_in", t.gate.until.Sub(now))
}

// throttle waits as the sink asked. The lock is held.
func (t *term) throttle(now time.Time, r *core.Result) {
	t.gate.throttle(now, r.RetryAfter)
	t.throttled = now
	t.route.outage.failed(opThrottle, reasonOf(r), "retry_in", t.gate.until.Sub(now))
}

// What a sink does, as trouble tells it.
const (
	opDeliver  = "delivering"
	opThrottle = "throttled"
)

// throttleQuiet is for how long a sink must not have throttled to count as
// working again: a sink at its rate limit throttles now and then.
const throttleQuiet = time.Minute
