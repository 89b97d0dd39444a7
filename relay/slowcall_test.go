package relay_test

import (
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/relay"
)

// hanging is a sink's answers in an outage while a call from before it hangs.
type hanging struct {
	*script
	mu       sync.Mutex
	until    time.Time    // when the outage ends
	late     core.Outcome // what the call with "hang1" answers
	hung     chan struct{}
	release  chan struct{}
	under    int // calls under way, that with "hang1" not counted
	most     int // of them at once, while the sink takes nothing
	slowness time.Duration
}

// hang makes the kit's sink hang at "hang1", and take nothing for a time from the
// event "away1" on.
func hang(k *kit, away, slowness time.Duration, late core.Outcome) *hanging {
	h := &hanging{script: k.sink, late: late, hung: make(chan struct{}), release: make(chan struct{}), slowness: slowness}
	k.sink.caps.MaxBatch = 1
	k.sink.reply = func(l core.Lease, n int) core.Result {
		if l.Event.ID == "hang1" && n == 1 {
			close(h.hung)
			<-h.release // whatever its context says
			return outcome(h.late)
		}
		return h.answer(l, away)
	}
	return h
}

func (h *hanging) answer(l core.Lease, away time.Duration) core.Result {
	h.mu.Lock()
	if l.Event.ID == "away1" && h.until.IsZero() {
		h.until = time.Now().Add(away)
		h.mu.Unlock()
		return outcome(core.Unavailable)
	}
	h.under++
	if time.Now().Before(h.until) {
		h.most = max(h.most, h.under)
	}
	h.mu.Unlock()
	time.Sleep(h.slowness)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.under--
	if time.Now().Before(h.until) {
		return outcome(core.Unavailable)
	}
	return core.Result{Outcome: core.Delivered}
}

func (h *hanging) count(n *int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return *n
}

// slowCalls runs a test for a worker and for a route: send sends events, by their
// ids.
func slowCalls(t *testing.T, test func(t *testing.T, k *kit, send func(ids ...string), configure func(*relay.Config))) {
	t.Run("worker", func(t *testing.T) {
		inBubble(t, func(t *testing.T, k *kit) {
			test(t, k, func(ids ...string) {
				for _, id := range ids {
					k.enqueue(job(id))
				}
			}, working())
		})
	})
	t.Run("route", func(t *testing.T) {
		inBubble(t, func(t *testing.T, k *kit) {
			test(t, k, func(ids ...string) { k.append(ids...) }, func(*relay.Config) {})
		})
	})
}

// others are ids of twenty keys.
func others() []string {
	ids := make([]string, 20)
	for i := range ids {
		ids[i] = string(rune('a'+i)) + "1"
	}
	return ids
}

func TestWhileOneCallHangsTheSinkIsTriedAgainAndTheOthersGoOn(t *testing.T) {
	t.Parallel()
	slowCalls(t, func(t *testing.T, k *kit, send func(...string), configure func(*relay.Config)) {
		h := hang(k, 0, 0, core.Unknown) // away for one answer
		r := k.start(configure)
		send("hang1")
		<-h.hung
		send("away1")
		pass(200 * time.Millisecond) // until a worker has looked
		send(others()...)
		pass(5 * time.Second)
		got := k.sink.got()
		equal(t, "delivered while a call hangs", len(got), 21)
		equal(t, "what was away is delivered", slices.Contains(got, "away1"), true)
		close(h.release)
		pass(time.Minute)
		equal(t, "delivered in the end", len(k.sink.got()), 22)
		r.stop()
	})
}

func TestWhileOneCallHangsAnOutageIsTriedByOneOtherAtATime(t *testing.T) {
	t.Parallel()
	slowCalls(t, func(t *testing.T, k *kit, send func(...string), configure func(*relay.Config)) {
		h := hang(k, 10*time.Minute, 2*time.Second, core.Unknown)
		r := k.start(configure)
		send("hang1")
		<-h.hung
		send("away1")
		pass(200 * time.Millisecond) // until a worker has looked
		calls := k.sink.callCount()
		send(others()...)
		pass(9 * time.Minute)
		between(t, "tries", time.Duration(k.sink.callCount()-calls), 15, 30)
		equal(t, "tries at once", h.count(&h.most), 1)
		equal(t, "delivered", len(k.sink.got()), 0)
		pass(5 * time.Minute)
		equal(t, "delivered when it is back", len(k.sink.got()), 21)
		equal(t, "lines that tell the outage", k.log.with(slog.LevelWarn, "the sink takes no"), 1)
		close(h.release)
		pass(time.Minute)
		r.stop()
	})
}

func TestTheLateAnswerOfACallFromBeforeAnOutageBeginsNoRound(t *testing.T) {
	t.Parallel()
	for _, late := range []core.Outcome{core.Unavailable, core.NotAttempted, core.Unknown, core.Refused} {
		t.Run("in the outage, "+late.String(), func(t *testing.T) {
			t.Parallel()
			slowCalls(t, func(t *testing.T, k *kit, send func(...string), configure func(*relay.Config)) {
				// A try lasts ten seconds, so that the late answer comes in one.
				h := hang(k, time.Minute, 10*time.Second, late)
				r := k.start(configure, oneSecondOutages)
				send("hang1")
				<-h.hung
				send("away1")
				pass(200 * time.Millisecond)
				send(others()...)
				pass(5 * time.Second) // the first try is under way
				equal(t, "tries under way", h.count(&h.under), 1)
				close(h.release)
				pass(4 * time.Second)
				equal(t, "tries under way after the answer", h.count(&h.under), 1)
				pass(2 * time.Minute)
				equal(t, "tries at once", h.count(&h.most), 1)
				equal(t, "delivered", len(k.sink.got()), 22)
				r.stop()
			})
		})
	}
	t.Run("after the outage", func(t *testing.T) {
		slowCalls(t, func(t *testing.T, k *kit, send func(...string), configure func(*relay.Config)) {
			h := hang(k, 0, 0, core.Unavailable)
			r := k.start(configure, oneSecondOutages)
			send("hang1")
			<-h.hung
			send("away1")
			pass(5 * time.Second)
			equal(t, "delivered", len(k.sink.got()), 1)
			close(h.release)
			settle()
			for i := range 8 { // at once, without a wait for a round
				send("x" + strconv.Itoa(i) + "x1")
			}
			pass(200 * time.Millisecond)
			if n := len(k.sink.got()); n < 9 {
				t.Errorf("%d delivered right after the late answer, want 9 or 10", n)
			}
			r.stop()
		})
	})
}

// oneSecondOutages makes each round's wait about a second.
func oneSecondOutages(c *relay.Config) {
	b := relay.Backoff{Initial: time.Second, Max: time.Second}
	for i := range c.Routes {
		c.Routes[i].OutageBackoff = b
	}
	for i := range c.Workers {
		c.Workers[i].OutageBackoff = b
	}
}
