package kafka

import (
	"context"
	"fmt"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/wire"
)

// delivery is one call of Deliver.
type delivery struct {
	s       *Sink
	leases  []core.Lease
	results []core.Result
	items   []item
	headers []wire.Header
	failed  failedKeys
	// spilt tells that headers of an event that can't travel lie behind the
	// end of headers.
	spilt bool
}

// item is a lease that is to be sent.
type item struct {
	lease      int
	topic      int // index of the topic's name, in the plan
	first, end int // its headers
	body       int // see recordBody
}

// queue holds what goes to one partition, in order.
type queue struct {
	topic     *topic
	partition int32
	items     []int
	// next is the first that is still to be sent.
	next int
	// singly is the end of those that are sent one by one.
	singly int
}

// place is where an event goes, and in which wave.
type place struct {
	wave      int
	topic     *topic
	partition int32
}

// plan decides where each lease goes. The waves follow one another: within one,
// a key has only one partition, so that its events stay in order and a failure
// stops the later ones.
func (d *delivery) plan(ctx context.Context) [][]*queue {
	began := time.Now()
	names := d.encode()
	if len(d.items) == 0 {
		return nil
	}
	topics, err := d.s.cluster.lookup(ctx, names)
	if err != nil {
		for _, it := range d.items {
			d.fail(it.lease, core.ResultOf("", err))
		}
		return nil
	}
	d.confirmLimits(ctx, topics, began)
	var waves [][]*queue
	queues := map[place]*queue{}
	var last map[string]place
	if len(topics) > 1 {
		last = make(map[string]place, len(d.items))
	}
	for i := range d.items {
		it := &d.items[i]
		t := topics[it.topic]
		if t.err != nil {
			d.fail(it.lease, core.ResultOf("", t.err))
			continue
		}
		if err := d.oversize(t, it); err != nil {
			d.fail(it.lease, core.ResultOf("", core.MarkRejected(err)))
			continue
		}
		key := d.leases[it.lease].Event.AggregateID
		p := place{topic: t, partition: partitionOf(key, len(t.leaders))}
		if last != nil {
			if before, ok := last[key]; ok {
				p.wave = before.wave
				if before != p {
					p.wave++
				}
			}
			last[key] = p
		}
		q := queues[p]
		if q == nil {
			q = &queue{topic: t, partition: p.partition}
			queues[p] = q
			for len(waves) <= p.wave {
				waves = append(waves, nil)
			}
			waves[p.wave] = append(waves[p.wave], q)
		}
		q.items = append(q.items, i)
	}
	return waves
}

// encode makes the headers of all leases, sets aside those that can't travel,
// and returns the names of their topics. What comes after those in their keys
// isn't looked at.
func (d *delivery) encode() []string {
	var names []string
	numbers := map[string]int{}
	for i := range d.leases {
		l := &d.leases[i]
		if d.stopped(i) {
			continue
		}
		name, err := d.s.topics.Of(l)
		if err != nil {
			d.fail(i, core.ResultOf("", core.MarkRejected(fmt.Errorf("naming the topic: %w", err))))
			continue
		}
		it := item{lease: i, first: len(d.headers)}
		if d.headers, err = d.s.encoder.Append(d.headers, l); err != nil {
			d.spilt = true
			d.fail(i, core.ResultOf("", core.MarkRejected(fmt.Errorf("encoding the event: %w", err))))
			continue
		}
		it.end = len(d.headers)
		it.body = recordBody(l, d.headers[it.first:it.end])
		n, ok := numbers[name]
		if !ok {
			n = len(names)
			numbers[name] = n
			names = append(names, name)
		}
		it.topic = n
		d.items = append(d.items, it)
	}
	return names
}

// take removes the next record set from the queue: as many events as fit in the
// topic's limit and in a request, skipping those that an earlier event of their
// key stops. It is empty at the end.
func (q *queue) take(d *delivery) (set []int, size int) {
	size = setOverhead
	limit := min(q.topic.bytes, maxRequestBytes)
	alone := false
	for ; q.next < len(q.items); q.next++ {
		it := &d.items[q.items[q.next]]
		if d.stopped(it.lease) {
			continue // stays as not attempted
		}
		if len(set) == 0 {
			alone = q.next < q.singly
		} else if alone {
			break
		}
		n := recordLen(it.body, len(set))
		if len(set) > 0 && size+n > limit {
			break
		}
		set, size = append(set, q.items[q.next]), size+n
	}
	return set, size
}
