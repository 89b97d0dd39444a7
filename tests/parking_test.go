package tests

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/trial"
)

// parkingRoute is the cursor of the tests of parking.
const parkingRoute = "parking"

// parkingLease is long enough for a busy machine, and short enough for many deaths.
const parkingLease = 1500 * time.Millisecond

// newParking makes a cast whose actors hold one cursor, and refuse by a share.
func newParking(t *testing.T, hold bool, refused float64) *cast {
	t.Helper()
	c := newCast(t, "")
	c.config.Route, c.config.Hold, c.config.Lanes = parkingRoute, hold, 5
	c.config.Shares = map[string]float64{"refused": refused}
	return c
}

// orders makes an order service on the cast.
func (c *cast) orders(transactions, keys int, perSecond float64) *trial.Workload {
	c.t.Helper()
	w := &trial.Workload{
		Outbox: c.store, Database: c.db, Type: "account.changed",
		Transactions: transactions, Keys: keys, PerSecond: perSecond, Workers: 4, Seed: uint64(keys),
	}
	require.NoError(c.t, w.Prepare(c.t.Context()))
	return w
}

// arrivals are the events that have arrived, by id.
func (c *cast) arrivals() map[string]trial.Note {
	c.t.Helper()
	arrived := map[string]trial.Note{}
	for _, n := range c.notes() {
		if _, again := arrived[n.ID]; n.Arrived && !again {
			arrived[n.ID] = n
		}
	}
	return arrived
}

// awaitArrivals waits until what was committed has arrived, but for some.
func (c *cast) awaitArrivals(relay *trial.Relay, but map[string]bool) {
	c.t.Helper()
	committed, err := trial.Ledger(c.t.Context(), c.db)
	require.NoError(c.t, err)
	defer func() {
		if c.t.Failed() {
			c.t.Logf("the relay's log:\n%s", relay.Log())
		}
	}()
	eventually(c.t, scale(3*time.Minute, 15*time.Minute), "the arrival of all events", func() bool {
		arrived := c.arrivals()
		for _, e := range committed {
			if _, there := arrived[e.ID]; !there && !but[e.ID] {
				return false
			}
		}
		return true
	})
}

// check compares what arrived with what was committed. Events that left the order
// of their key need only arrive.
func (c *cast) check(what string, left map[string]bool) {
	c.t.Helper()
	committed, err := trial.Ledger(c.t.Context(), c.db)
	require.NoError(c.t, err)
	require.NotEmpty(c.t, committed, "the workload committed nothing")
	var ordered []trial.Committed
	arrived := c.arrivals()
	for _, e := range committed {
		if !left[e.ID] {
			ordered = append(ordered, e)
			continue
		}
		_, there := arrived[e.ID]
		require.True(c.t, there, "event %s, which had failed, was not delivered when it was retried", e.ID)
	}
	var records []trial.Record
	for _, r := range trial.Arrivals(c.notes()) {
		if !left[r.ID] {
			records = append(records, r)
		}
	}
	report := trial.Check(ordered, records)
	results.add(c.t.Name(), what, report.Line(), fmt.Sprintf("left_the_order=%d", len(left)))
	require.True(c.t, report.OK(), "%s: %s\n%v", what, report.Line(), report.Examples)
}

// parkedJobs are the jobs of the cursor in a state.
func (c *cast) parkedJobs(filter core.JobFilter) []core.JobInfo {
	c.t.Helper()
	filter.Cursor = parkingRoute
	var all []core.JobInfo
	for after := ""; ; {
		page, next, err := c.store.Jobs(c.t.Context(), filter, after, 500)
		require.NoError(c.t, err)
		all = append(all, page...)
		if next == "" {
			return all
		}
		after = next
	}
}

// policies are both, by name.
var policies = map[string]bool{"skip": false, "hold": true}

// TestARelayThatDiesWhileItParksLosesNothing lets relays die at each place of
// parking while a sink refuses one event in ten, again and again.
func TestARelayThatDiesWhileItParksLosesNothing(t *testing.T) {
	t.Parallel()
	points := []string{
		"relay.parking",          // nothing is parked yet
		"relay.parked",           // parked, and not known to be
		"relay.parked-claimed",   // lent to the holder, nothing sent
		"relay.parked-delivered", // sent, not settled
		"relay.parked-settled",   // settled; the key may be released
		"mongo.takeover",         // the fence is raised
		"relay.acquired",         // the open jobs are not known yet
	}
	for policy, hold := range policies {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			c := newParking(t, hold, 0.1)
			c.config.CursorLease = parkingLease
			c.config.PrefixPerKey = hold // once so, once so
			w := c.orders(1<<30, 60, 60)
			committing, stop := background(t, func(ctx context.Context) { _ = w.Run(ctx) }) // until stop
			for _, point := range points {
				// One that lives in between settles events: the next deaths are
				// measured from there.
				healthy := c.start()
				before := len(c.arrivals())
				eventually(t, 2*time.Minute, "the delivery by a healthy relay", func() bool { return len(c.arrivals()) > before+20 })
				healthy.Kill()
				for n := range scale(2, 8) {
					c.dieAt(point, 1+n%4)
				}
			}
			stop()
			<-committing
			c.config.CursorLease = 0 // a busy machine loses a short one
			last := c.start()
			c.awaitArrivals(last, nil)
			c.stop(last)
			require.Empty(t, c.parkedJobs(core.JobFilter{State: core.JobFailed}), "a relay that died is no reason to give an event up")
			require.NotEmpty(t, c.parkedJobs(core.JobFilter{State: core.JobCompleted}), "nothing was parked")
			c.check("", nil)
		})
	}
}

// dieAt starts an actor that dies at the nth visit to a crash point.
func (c *cast) dieAt(point string, nth int) {
	c.t.Helper()
	if point == "mongo.takeover" || point == "relay.acquired" {
		nth = 1 // one visit a start
	}
	relay := c.start(fmt.Sprintf("OUTBOX_CRASH=%s:%d", point, nth))
	select {
	case <-relay.Done():
	case <-time.After(2 * time.Minute):
		require.Fail(c.t, "crash point was not reached", "%s\n%s", point, relay.Log())
	}
	require.True(c.t, relay.Killed(), "%s: the relay ended otherwise:\n%s", point, relay.Log())
	results.count(c.t.Name(), "died at "+point)
}
