package relay_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/relay"
)

func TestTenIdleProcessesAndOneEnqueueClaimOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		var lines []*line
		for range 10 {
			l := newLine(k.store)
			lines = append(lines, l)
			k.start(working(), through(l))
		}
		claims := func() (n int) {
			for _, l := range lines {
				n += l.count("claim")
			}
			return n
		}
		pass(time.Minute)
		equal(t, "claims while idle", claims(), 0)
		for i := range 20 {
			before, began := claims(), time.Now()
			k.enqueue(job(fmt.Sprint("j", i)))
			pass(5 * time.Second)
			between(t, "claims for one job", time.Duration(claims()-before), 1, 2)
			between(t, "it waited", k.sink.of(fmt.Sprint("j", i))[0].at.Sub(began), 0, 60*time.Millisecond)
		}
	})
}

func TestAnIdleProcessAsksSeldom(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		q := newLine(k.store)
		k.enqueue(jobs("j", 10)...)
		k.start(working(), through(q))
		pass(time.Minute)
		before := q.all()
		pass(time.Hour)
		calls := q.all() - before
		// A look each 15 seconds, and one for leases that ran out each 20.
		between(t, "calls of the queue in an hour", time.Duration(calls), 300, 500)
	})
}

func TestWithoutAStreamItIsPolledLessAndLessOften(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		q := newLine(unwatched{k.store})
		k.start(working(), through(q))
		pass(time.Minute)
		before := q.count("next due")
		pass(time.Minute)
		between(t, "looks in a minute", time.Duration(q.count("next due")-before), 50, 76)
		began := time.Now()
		k.enqueue(job("a"))
		for len(k.sink.of("a")) == 0 {
			pass(10 * time.Millisecond)
		}
		between(t, "waited", time.Since(began), 0, 1300*time.Millisecond)
		for i := range 20 { // while there is work it is polled often
			id := fmt.Sprint("j", i)
			began := time.Now()
			k.enqueue(job(id))
			pass(250 * time.Millisecond)
			between(t, "waited while there was work", k.sink.of(id)[0].at.Sub(began), 0, 250*time.Millisecond)
		}
	})
}

func TestADelayedJobGoesOutWhenItIsDue(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.start(working())
		began := time.Now()
		for i := range 10 {
			j := job(fmt.Sprint("j", i))
			j.NotBefore = began.Add(time.Duration(i+1) * 77 * time.Second)
			k.enqueue(j)
		}
		pass(time.Hour)
		for i := range 10 {
			due := began.Add(time.Duration(i+1) * 77 * time.Second)
			between(t, "after it was due", k.sink.of(fmt.Sprint("j", i))[0].at.Sub(due), 0, 60*time.Millisecond)
		}
	})
}

func TestAWatchThatFailsBeginsAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		q := &blind{Queue: k.store}
		k.start(working(), through(q))
		pass(5 * time.Minute)
		began := time.Now()
		k.enqueue(job("a"))
		pass(5 * time.Second)
		between(t, "waited without a watch", k.sink.of("a")[0].at.Sub(began), 0, 1300*time.Millisecond)
		q.sees.Store(true)
		pass(time.Minute)
		began = time.Now()
		k.enqueue(job("b"))
		pass(5 * time.Second)
		between(t, "waited with it", k.sink.of("b")[0].at.Sub(began), 0, 60*time.Millisecond)
	})
}

// blind is a queue whose watch fails.
type blind struct {
	core.Queue
	sees atomic.Bool
}

func (q *blind) Watch(ctx context.Context, wake func(core.Wake)) error {
	if !q.sees.Load() {
		return errDown
	}
	return q.Queue.Watch(ctx, wake)
}

func TestJobsOfADeadProcessComeBackAlsoWhereThereAreOnlyRoutes(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		id := k.enqueue(job("a"))[0]
		if _, err := k.store.Claim(t.Context(), core.ClaimRequest{Sink: "s", Max: 1, Owner: "dead"}); err != nil {
			t.Fatal(err)
		}
		k.start(func(c *relay.Config) { c.Queue = k.store })
		pass(64 * time.Second)
		equal(t, "state before the grace is over", k.info(id).State, core.JobActive)
		pass(26 * time.Second)
		equal(t, "state", k.info(id).State, core.JobReady)
	})
}

func TestOnlyJobsOfKnownSinksAreTakenBack(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		mail := job("a")
		mail.Sink = "mail" // which must not repeat, as its processes know
		id := k.enqueue(mail)[0]
		if _, err := k.store.Claim(t.Context(), core.ClaimRequest{Sink: "mail", Max: 1}); err != nil {
			t.Fatal(err)
		}
		k.start(working())
		pass(time.Hour)
		equal(t, "state", k.info(id).State, core.JobActive)
		k.start(working(), func(c *relay.Config) {
			knows := newScript(t)
			knows.caps.NoRepeat = true
			c.Sinks = map[string]core.Sink{"s": k.sink, "mail": knows}
		})
		pass(time.Minute)
		equal(t, "state where the sink is known", k.info(id).State, core.JobUnknown)
	})
}

func TestOldFailedJobsAreRemoved(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.reply = func(core.Lease, int) core.Result { return outcome(core.Rejected) }
		k.enqueue(jobs("j", 3)...)
		k.start(working())
		pass(core.DefaultFailedRetention - time.Hour)
		k.counts("before", 0, 0, 0, 3)
		pass(2 * time.Hour)
		k.counts("after", 0, 0, 0, 0)
	})
}
