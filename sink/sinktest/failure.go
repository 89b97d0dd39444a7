package sinktest

import (
	"bytes"
	"slices"
	"testing"

	"github.com/gooutbox/outbox/core"
)

// largeCall makes a call of as many leases as a relay makes by default. MaxBatch
// is what is useful, not what is allowed.
func largeCall(t *testing.T, d Destination) {
	s := d.open(t)
	leases := keys("large", core.DefaultReadEvents, 100)
	results := deliver(t, t.Context(), s, leases...)
	for i, r := range results {
		if r.Outcome != core.Delivered {
			t.Errorf("result %d of a call of %d leases is %v (%v)", i, len(leases), r.Outcome, r.Err)
		}
	}
	checkTruth(t, d.received(t), leases, results)
}

// hugeEvent is larger than what any broker takes by default.
const hugeEvent = 32 << 20

func hugeEventHarmsNoOther(t *testing.T, d Destination) {
	if d.TooLarge == 0 {
		t.Skip("the destination has no limit of size")
	}
	s := d.open(t)
	mustDeliver(t, s, lease("before", 100))
	huge := lease("huge", hugeEvent)
	leases := []core.Lease{lease("beside-1", 100), huge, lease("beside-2", 100)}
	results := deliver(t, t.Context(), s, leases...)
	if want := []core.Outcome{core.Delivered, core.Rejected, core.Delivered}; !slices.Equal(outcomesOf(results), want) {
		t.Errorf("a small event, one of %d bytes and a small one are %v (%v), want %v", hugeEvent, outcomesOf(results), results[1].Err, want)
	}
	mustDeliver(t, s, lease("huge", 100), lease("after", 100))
	checkTruth(t, d.received(t), leases, results)
}

func rejectedForGood(t *testing.T, d Destination) {
	if len(d.Reject) == 0 {
		t.Skip("the harness knows no event that is rejected")
	}
	s := d.open(t)
	for n, spoil := range d.Reject {
		for attempt := 1; attempt <= 2; attempt++ {
			bad := lease("rejected", 100)
			bad.Attempt = attempt
			spoil(&bad.Event)
			leases := []core.Lease{lease("healthy", 100), bad}
			results := deliver(t, t.Context(), s, leases...)
			if results[0].Outcome != core.Delivered || results[1].Outcome != core.Rejected {
				t.Errorf("way %d, attempt %d: a good event and the spoilt one are %v and %v (%v), want delivered and rejected",
					n, attempt, results[0].Outcome, results[1].Outcome, results[1].Err)
			}
			checkTruth(t, d.received(t), leases, results)
		}
	}
}

func refusedForNow(t *testing.T, d Destination) {
	if d.Refuse == nil {
		t.Skip("the harness can't make the destination refuse an event for now")
	}
	s := d.open(t)
	spoil, allow := d.Refuse(t)
	bad := lease("refused", 100)
	spoil(&bad.Event)
	for attempt := 1; attempt <= 2; attempt++ {
		bad.Attempt = attempt
		leases := []core.Lease{lease("healthy", 100), bad}
		results := deliver(t, t.Context(), s, leases...)
		if results[0].Outcome != core.Delivered || results[1].Outcome != core.Refused {
			t.Errorf("attempt %d: a good event and one that is refused for now are %v and %v (%v), want delivered and refused",
				attempt, results[0].Outcome, results[1].Outcome, results[1].Err)
		}
		checkTruth(t, d.received(t), leases, results)
	}
	allow()
	deliverAgain(t, s, &bad)
	if n := d.received(t)[bad.Event.ID]; n != 1 {
		t.Errorf("the event that was refused is there %d times, want once", n)
	}
}

// deliverAgain delivers an event that the destination takes by now, as soon as
// the sink has seen that.
func deliverAgain(t testing.TB, s core.Sink, l *core.Lease) {
	t.Helper()
	eventually(t, func() bool {
		l.Attempt++
		return deliver(t, t.Context(), s, *l)[0].Outcome == core.Delivered
	}, "the destination takes the event again and it isn't delivered")
}

func orderThroughFailures(t *testing.T, d Destination) {
	if d.Refuse == nil {
		t.Skip("the harness can't make the destination refuse an event for now")
	}
	s := d.open(t)
	spoil, allow := d.Refuse(t)
	events := make([]core.Lease, 5)
	for i := range events {
		events[i] = lease("ordered", 100)
	}
	const refused = 2
	spoil(&events[refused].Event)
	other := keys("beside", 10, 100)
	var results []core.Result
	if core.CapabilitiesOf(s).PrefixPerKey {
		results = deliver(t, t.Context(), s, slices.Concat(events, other)...)
		for i, r := range results[:len(events)] {
			if (r.Outcome == core.Delivered) != (i < refused) {
				t.Errorf("event %d of a key whose event %d is refused is %v (%v)", i, refused, r.Outcome, r.Err)
			}
		}
		results = results[len(events):]
	} else { // the relay holds back what comes after a failure
		mustDeliver(t, s, events[0])
		mustDeliver(t, s, events[1])
		results = deliver(t, t.Context(), s, append([]core.Lease{events[refused]}, other...)...)[1:]
	}
	for i, r := range results {
		if r.Outcome != core.Delivered {
			t.Errorf("event %d of another key is %v (%v)", i, r.Outcome, r.Err)
		}
	}
	allow()
	for i := refused; i < len(events); i++ {
		deliverAgain(t, s, &events[i])
	}
	var want []string
	for _, l := range events {
		want = append(want, l.Event.ID)
	}
	got := firsts(idsOf(d.Received(t), "ordered"))
	if d.RefusedApart {
		if !slices.Contains(got, want[refused]) {
			t.Errorf("the event that was refused is missing: %v", got)
		}
		got = slices.DeleteFunc(got, func(id string) bool { return id == want[refused] })
		want = slices.Delete(want, refused, refused+1)
	}
	if !d.Unordered && !slices.Equal(got, want) {
		t.Errorf("the key arrived as %v, want %v", got, want)
	}
}

// repeatsAreAsDeclared delivers an event again, as after a holder died between
// the delivery and the save.
func repeatsAreAsDeclared(t *testing.T, d Destination) {
	s := d.open(t)
	again := lease("again", 100)
	mustDeliver(t, s, again)
	again.Redelivered, again.Fence = true, again.Fence+1
	r := deliver(t, t.Context(), s, again)[0]
	messages := d.Received(t)
	ids := idsOf(messages, "again")
	if core.CapabilitiesOf(s).NoRepeat {
		if len(ids) != 1 {
			t.Errorf("the event is there %d times, and the sink declares NoRepeat", len(ids))
		}
		return
	}
	if r.Outcome != core.Delivered {
		t.Errorf("an event that comes again is %v (%v), want delivered", r.Outcome, r.Err)
	}
	if len(ids) == 0 || len(ids) > 2 {
		t.Errorf("an event that was delivered twice is there %d times", len(ids))
	}
	for _, m := range messages {
		if m.Key == "again" && !bytes.Equal(m.Payload, again.Event.Payload) {
			t.Error("the repeat has another payload")
		}
	}
}

func outcomesOf(results []core.Result) []core.Outcome {
	all := make([]core.Outcome, len(results))
	for i, r := range results {
		all[i] = r.Outcome
	}
	return all
}

// firsts drops repeats.
func firsts(ids []string) []string {
	seen := map[string]bool{}
	var out []string
	for _, id := range ids {
		if !seen[id] {
			seen[id] = true
			out = append(out, id)
		}
	}
	return out
}
