package relay_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/relay"
)

func TestAJobWhoseLeaseRanOutAheadIsNotBegun(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		var gone atomic.Bool
		q := newLine(k.store)
		k.sink.before = func(_ context.Context, leases []core.Lease) {
			if leases[0].Event.ID != "warm" && !gone.Load() { // the other waits behind it, and the store is gone
				q.sever()
				time.Sleep(3 * time.Second)
			}
		}
		k.enqueue(job("warm"))
		r := k.start(working(func(w *relay.Worker) { w.Lanes, w.BatchJobs, w.Lease = 1, 1, time.Second }), through(q))
		pass(time.Second)
		ids := k.enqueue(job("a"), job("b"))
		pass(4 * time.Second)
		equal(t, "jobs that were begun", len(k.sink.got()), 2)
		for _, id := range ids {
			equal(t, "state, both were claimed", k.info(id).State, core.JobActive)
		}
		gone.Store(true)
		q.mend()
		pass(time.Minute)
		k.counts("in the end", 0, 0, 3, 0)
		r.stop()
	})
}
