package amqp

import (
	"errors"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/wire"
)

var errKeyFailed = errors.New("an earlier event of the key was not delivered")

// delivery is one call of Deliver. A key has at most one lease in ready, alone
// or inFlight: its next one comes when that was confirmed.
type delivery struct {
	s       *Sink
	leases  []core.Lease
	results []core.Result
	// next is the lease that follows in the same key, or none.
	next []int
	// ready are leases that may be sent now, and alone those that have to wait
	// until nothing else is under way.
	ready, alone []int
	// inFlight are the messages without an answer, by their tags, and ids
	// theirs.
	inFlight map[uint64]*message
	ids      map[string]struct{}
	bytes    int
	// solo: what is in flight has to be alone.
	solo bool
	// ended is why nothing more is sent, marked with the outcome of what could
	// have been.
	ended error
	// losses counts the channels that ended while nothing was under way.
	losses int

	headers []wire.Header
}

const none = -1

func newDelivery(s *Sink, leases []core.Lease, results []core.Result) *delivery {
	d := &delivery{
		s: s, leases: leases, results: results,
		next: make([]int, len(leases)), ready: make([]int, 0, len(leases)),
		inFlight: make(map[uint64]*message, min(len(leases), maxInFlight)),
		ids:      make(map[string]struct{}, min(len(leases), maxInFlight)),
	}
	last := make(map[string]int, len(leases))
	for i := range leases {
		d.next[i] = none
		key := leases[i].Event.AggregateID
		if before, ok := last[key]; ok {
			d.next[before] = i
		} else {
			d.ready = append(d.ready, i)
		}
		last[key] = i
	}
	return d
}

// maxBytesInFlight bounds the bodies without an answer, except that one message
// always fits: all of them may come back.
const maxBytesInFlight = 8 << 20

// room tells whether another message may be sent.
func (d *delivery) room() bool {
	return len(d.inFlight) < maxInFlight && d.bytes < maxBytesInFlight && (!d.solo || len(d.inFlight) == 0)
}

// pick takes the next lease that may be sent. solo tells that it is one that
// has to be alone, which it is then.
func (d *delivery) pick() (lease int, solo, ok bool) {
	switch {
	case !d.room():
	case len(d.ready) > 0:
		lease, d.ready = d.ready[0], d.ready[1:]
		return lease, false, true
	case len(d.alone) > 0 && len(d.inFlight) == 0:
		lease, d.alone = d.alone[0], d.alone[1:]
		return lease, true, true
	}
	return 0, false, false
}

// sent notes a message that is under way.
func (d *delivery) sent(tag uint64, m *message) {
	d.inFlight[tag] = m
	d.ids[m.publishing.MessageId] = struct{}{}
	d.bytes += m.size()
	d.solo = m.alone
}

// landed takes a message out of those under way.
func (d *delivery) landed(tag uint64) *message {
	m := d.inFlight[tag]
	if m == nil {
		return nil
	}
	delete(d.inFlight, tag)
	delete(d.ids, m.publishing.MessageId)
	d.bytes -= m.size()
	return m
}

// delivered lets the key go on.
func (d *delivery) delivered(m *message) {
	d.results[m.lease] = core.Result{Outcome: core.Delivered, Receipt: m.exchange + "/" + m.key}
	if next := d.next[m.lease]; next != none {
		d.ready = append(d.ready, next)
	}
}

// fail ends the key, whose later leases stay as not attempted.
func (d *delivery) fail(lease int, err error) { d.results[lease] = core.ResultOf("", err) }

// finish gives those that could have been sent the reason why they were not,
// and those after them theirs.
func (d *delivery) finish() {
	for _, lease := range append(d.ready, d.alone...) {
		d.fail(lease, d.ended)
	}
	for i := range d.results {
		if r := &d.results[i]; r.Outcome == core.NotAttempted && r.Err == nil {
			r.Err = errKeyFailed
		}
	}
}
