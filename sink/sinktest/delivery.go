package sinktest

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/gooutbox/outbox/core"
)

func emptyCall(t *testing.T, d Destination) {
	s := d.open(t)
	if results := s.Deliver(t.Context(), nil); len(results) != 0 {
		t.Errorf("Deliver of nothing returned %d results", len(results))
	}
	if n := len(d.Received(t)); n != 0 {
		t.Errorf("Deliver of nothing brought %d messages", n)
	}
}

func confirmedIsThere(t *testing.T, d Destination) {
	s := d.open(t)
	leases := keys("key", 100, 500)
	mustDeliver(t, s, leases...)
	byID := map[string]Message{}
	messages := d.Received(t)
	for _, m := range messages {
		byID[m.ID] = m
	}
	for _, l := range leases {
		m, ok := byID[l.Event.ID]
		if !ok {
			t.Fatalf("%s was confirmed and isn't there", l.Event.ID)
		}
		if m.Key != l.Event.AggregateID {
			t.Errorf("%s has key %q, want %q", m.ID, m.Key, l.Event.AggregateID)
		}
		if !bytes.Equal(m.Payload, l.Event.Payload) {
			t.Errorf("%s has another payload: %d bytes, want %d", m.ID, len(m.Payload), len(l.Event.Payload))
		}
	}
	if len(messages) != len(leases) {
		t.Errorf("%d messages are there, want %d: a sink never repeats by itself", len(messages), len(leases))
	}
}

// oneResultPerLease sends calls of several sizes and checks each result
// against the lease at its place.
func oneResultPerLease(t *testing.T, d Destination) {
	s := d.open(t)
	batch := core.CapabilitiesOf(s).MaxBatch
	if batch == 0 {
		batch = 64
	}
	for _, n := range []int{1, 2, batch} {
		leases := keys(fmt.Sprintf("size-%d", n), n, 100)
		results := deliver(t, t.Context(), s, leases...)
		checkTruth(t, d.received(t), leases, results)
		for i, r := range results {
			if r.Outcome != core.Delivered {
				t.Errorf("result %d of %d: %v: %v", i, n, r.Outcome, r.Err)
			}
		}
	}
}

func orderWithinKey(t *testing.T, d Destination) {
	s := d.open(t)
	const rounds, width = 20, 5
	want := map[string][]string{}
	prefix := core.CapabilitiesOf(s).PrefixPerKey
	for range rounds {
		var call []core.Lease
		for range width {
			for k := range 3 {
				l := lease(fmt.Sprintf("key-%d", k), 100)
				want[l.Event.AggregateID] = append(want[l.Event.AggregateID], l.Event.ID)
				call = append(call, l)
			}
			if !prefix { // then a call holds one event of a key
				mustDeliver(t, s, call...)
				call = nil
			}
		}
		if len(call) > 0 {
			mustDeliver(t, s, call...)
		}
	}
	messages := d.Received(t)
	for key, ids := range want {
		got := idsOf(messages, key)
		if d.Unordered {
			slices.Sort(got)
			slices.Sort(ids)
		}
		if !slices.Equal(got, ids) {
			t.Errorf("%s arrived as %v, want %v", key, got, ids)
		}
	}
}

func badEventFailsAlone(t *testing.T, d Destination) {
	s := d.open(t)
	leases := keys("good", 9, 200)
	leases[4] = d.tooLarge(t, "bad")
	results := deliver(t, t.Context(), s, leases...)
	for i, r := range results {
		want := core.Delivered
		if i == 4 {
			want = core.Rejected
		}
		if r.Outcome != want {
			t.Errorf("result %d is %v (%v), want %v", i, r.Outcome, r.Err, want)
		}
	}
	checkTruth(t, d.received(t), leases, results)
}

func keyStopsAtFirstFailure(t *testing.T, d Destination) {
	s := d.open(t)
	if !core.CapabilitiesOf(s).PrefixPerKey {
		t.Skip("the sink takes one event of a key a call")
	}
	leases := []core.Lease{
		lease("failing", 100), lease("healthy", 100),
		d.tooLarge(t, "failing"), lease("healthy", 100),
		lease("failing", 100), lease("healthy", 100),
		lease("failing", 100), lease("healthy", 100),
	}
	results := deliver(t, t.Context(), s, leases...)
	want := []core.Outcome{
		core.Delivered, core.Delivered, core.Rejected, core.Delivered,
		core.NotAttempted, core.Delivered, core.NotAttempted, core.Delivered,
	}
	for i, r := range results {
		if r.Outcome != want[i] {
			t.Errorf("result %d (%s) is %v (%v), want %v", i, leases[i].Event.AggregateID, r.Outcome, r.Err, want[i])
		}
	}
	messages := d.Received(t)
	if got, want := idsOf(messages, "failing"), []string{leases[0].Event.ID}; !slices.Equal(got, want) {
		t.Errorf("of the key that failed %v arrived, want only what came before the failure, %v", got, want)
	}
	if got := len(idsOf(messages, "healthy")); got != 4 {
		t.Errorf("of the other key %d arrived, want 4", got)
	}
}

// badEventStopsOnlyLaterOnes puts an event of each kind that doesn't get through
// into the middle of a key. When in the call the sink finds out is its own
// affair: what is ahead of the event in its key arrives in the same call.
func badEventStopsOnlyLaterOnes(t *testing.T, d Destination) {
	s := d.open(t)
	if !core.CapabilitiesOf(s).PrefixPerKey {
		t.Skip("the sink takes one event of a key a call")
	}
	if len(d.Spoil) == 0 {
		t.Skip("the harness can't spoil an event")
	}
	for n, spoil := range d.Spoil {
		bad := fmt.Sprintf("spoilt-%d", n)
		leases := []core.Lease{
			lease(bad, 100), lease(bad+"-healthy", 100), lease(bad, 100), lease(bad, 100),
			lease(bad+"-healthy", 100), lease(bad, 100), lease(bad, 100), lease(bad+"-healthy", 100),
		}
		const at = 3
		spoil(&leases[at].Event)
		results := deliver(t, t.Context(), s, leases...)
		for i, r := range results {
			want := core.Delivered
			switch {
			case i == at:
				if r.Outcome != core.Rejected && r.Outcome != core.Refused {
					t.Errorf("way %d: the spoilt event is %v (%v), want rejected or refused", n, r.Outcome, r.Err)
				}
				continue
			case i > at && leases[i].Event.AggregateID == bad:
				want = core.NotAttempted
			}
			if r.Outcome != want {
				t.Errorf("way %d: result %d (%s), with the spoilt event at %d, is %v (%v), want %v",
					n, i, leases[i].Event.AggregateID, at, r.Outcome, r.Err, want)
			}
		}
		checkTruth(t, d.received(t), leases, results)
	}
}

func capabilitiesAreHonoured(t *testing.T, d Destination) {
	s := d.open(t)
	c := core.CapabilitiesOf(s)
	if again := core.CapabilitiesOf(s); again != c {
		t.Errorf("capabilities changed from %+v to %+v", c, again)
	}
	if c.MaxBatch > 0 {
		mustDeliver(t, s, keys("batch", c.MaxBatch, 100)...)
	}
	if c.MaxEventBytes > 0 {
		over := lease("over", 0)
		over.Event.Payload = make([]byte, c.MaxEventBytes+1)
		results := deliver(t, t.Context(), s, over, lease("under", 100))
		if results[0].Outcome != core.Rejected || results[1].Outcome != core.Delivered {
			t.Errorf("an event over MaxEventBytes and a small one are %v (%v) and %v (%v), want rejected and delivered",
				results[0].Outcome, results[0].Err, results[1].Outcome, results[1].Err)
		}
	}
}

func concurrentUse(t *testing.T, d Destination) {
	s := d.open(t)
	const callers, calls = 8, 10
	var all [callers][]core.Lease
	var wg sync.WaitGroup
	for c := range callers {
		for n := range calls {
			all[c] = append(all[c], keys(fmt.Sprintf("caller-%d-%d", c, n), 5, 200)...)
		}
		wg.Go(func() {
			for n := range calls {
				for i, r := range s.Deliver(context.Background(), all[c][n*5:n*5+5]) {
					if r.Outcome != core.Delivered {
						t.Errorf("call %d of caller %d, result %d: %v: %v", n, c, i, r.Outcome, r.Err)
					}
				}
			}
		})
	}
	wg.Wait()
	there := d.received(t)
	for _, leases := range all {
		for _, l := range leases {
			if there[l.Event.ID] != 1 {
				t.Errorf("%s is there %d times", l.Event.ID, there[l.Event.ID])
			}
		}
	}
}

// nothingIsKept overwrites payloads as soon as Deliver has returned, also from
// calls that were cut short.
func nothingIsKept(t *testing.T, d Destination) {
	s := d.open(t)
	want := map[string]string{}
	send := func(ctx context.Context) {
		leases := keys("kept", 20, 2000)
		for _, l := range leases {
			want[l.Event.ID] = string(l.Event.Payload)
		}
		deliver(t, ctx, s, leases...)
		for _, l := range leases {
			for i := range l.Event.Payload {
				l.Event.Payload[i] = 'X'
			}
			clear(l.Event.Headers)
		}
	}
	for range 5 {
		send(t.Context())
	}
	for _, cut := range cuts {
		ctx, cancel := context.WithTimeout(t.Context(), cut)
		send(ctx)
		cancel()
	}
	messages := d.Received(t)
	if len(messages) < 100 {
		t.Errorf("%d messages are there, want at least the 100 of the calls that were left alone", len(messages))
	}
	for _, m := range messages {
		if want[m.ID] != string(m.Payload) {
			t.Fatalf("%s arrived with what its payload was changed to after Deliver had returned", m.ID)
		}
	}
}
