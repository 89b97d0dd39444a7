package sqs

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/gooutbox/outbox/core"
)

// delivery is one call of Deliver.
type delivery struct {
	s       *Sink
	leases  []core.Lease
	results []core.Result
	began   time.Time
	// keys holds the leases of each key that are still to be sent, the first
	// one first, in the order of the first ones.
	keys [][]int

	mu sync.Mutex
	// over tells why nothing more is sent.
	over error
	// shut holds why nothing more is sent to a queue, by name or URL.
	shut map[string]error
}

// item is a message that is to be sent.
type item struct {
	lease   int
	queue   *queue
	message message
}

func newDelivery(s *Sink, leases []core.Lease, results []core.Result) *delivery {
	d := &delivery{s: s, leases: leases, results: results, began: time.Now(), shut: map[string]error{}}
	places := make(map[string]int, len(leases))
	for i := range leases {
		key := leases[i].Event.AggregateID
		place, ok := places[key]
		if !ok {
			place = len(d.keys)
			places[key] = place
			d.keys = append(d.keys, nil)
		}
		d.keys[place] = append(d.keys[place], i)
	}
	return d
}

// run sends in rounds: in each the next event of every key that has not failed.
// So a key never has two messages under way, and what fails isn't overtaken.
func (d *delivery) run(ctx context.Context) {
	for len(d.keys) > 0 && d.over == nil {
		var wg sync.WaitGroup
		slots := make(chan struct{}, d.s.cfg.Concurrency)
		for _, batch := range pack(d.prepare(ctx)) {
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				d.send(ctx, batch)
			})
		}
		wg.Wait()
		d.next()
	}
}

// next takes the first lease off each key that it was delivered of, and drops
// the keys that failed.
func (d *delivery) next() {
	left := d.keys[:0]
	for _, key := range d.keys {
		if d.results[key[0]].Outcome != core.Delivered {
			if d.over == nil {
				for _, lease := range key[1:] {
					d.results[lease].Err = errKeyFailed
				}
			}
			continue
		}
		if len(key) > 1 {
			left = append(left, key[1:])
		}
	}
	d.keys = left
}

// prepare makes the messages of a round. Those that can't be sent get their
// results.
func (d *delivery) prepare(ctx context.Context) []item {
	places := make([]string, len(d.keys))
	var wanted []string
	seen := map[string]bool{}
	for n, key := range d.keys {
		place, err := d.placeOf(key[0])
		if err != nil {
			d.fail(key[0], core.ResultOf("", core.MarkRejected(err)))
			continue
		}
		places[n] = place
		if !seen[place] {
			seen[place], wanted = true, append(wanted, place)
		}
	}
	queues := d.lookup(ctx, wanted)
	items := make([]item, 0, len(d.keys))
	for n, key := range d.keys {
		if q := queues[places[n]]; q != nil {
			if it, ok := d.make(ctx, key[0], q); ok {
				items = append(items, it)
			}
		} else if places[n] != "" {
			d.fail(key[0], d.whyShut(places[n]))
		}
	}
	return items
}

// placeOf names the queue of a lease.
func (d *delivery) placeOf(lease int) (string, error) {
	l := &d.leases[lease]
	if size := l.Event.Size(); size > maxBatchBytes {
		return "", &core.FieldError{Field: core.WholeEvent, Problem: "is too large for SQS", Size: size, Limit: maxBatchBytes}
	}
	place, err := d.s.queues.Of(l)
	if err != nil {
		return "", fmt.Errorf("naming the queue: %w", err)
	}
	if d.s.cfg.FIFO && !isFIFO(place) {
		return "", fmt.Errorf("naming the queue: %w", &core.FieldError{
			Field: d.s.queues.Fields(), Problem: fmt.Sprintf("makes %q, which is no FIFO queue: its name doesn't end in %s", nameOf(place), fifoSuffix),
		})
	}
	return place, nil
}

// lookup finds the queues, several at once. One that isn't in the answer is
// shut.
func (d *delivery) lookup(ctx context.Context, places []string) map[string]*queue {
	found := make(map[string]*queue, len(places))
	var wg sync.WaitGroup
	slots := make(chan struct{}, d.s.cfg.Concurrency)
	for _, place := range places {
		slots <- struct{}{}
		if d.shutFor(place) != nil {
			<-slots
			continue
		}
		wg.Go(func() {
			defer func() { <-slots }()
			q, err := d.s.lookup(ctx, place, time.Time{})
			if err != nil {
				d.stop(place, err)
				return
			}
			d.mu.Lock()
			defer d.mu.Unlock()
			found[place] = q
		})
	}
	wg.Wait()
	return found
}

// make makes the message of a lease, or answers why there is none.
func (d *delivery) make(ctx context.Context, lease int, q *queue) (item, bool) {
	it := item{lease: lease, queue: q}
	var err error
	if it.message, err = d.s.encode(&d.leases[lease], q.fifo); err != nil {
		d.fail(lease, core.ResultOf("", core.MarkRejected(fmt.Errorf("encoding the event: %w", err))))
		return it, false
	}
	err = q.checkSize(it.message.size)
	if err != nil && it.message.size <= maxBatchBytes && q.checked.Before(d.began) {
		// A rejection is for good, and the limit may have been raised.
		fresh, failure := d.s.lookup(ctx, q.place, d.began)
		if failure != nil {
			d.fail(lease, d.resultOf(failure, true))
			return it, false
		}
		it.queue, err = fresh, fresh.checkSize(it.message.size)
	}
	if err != nil {
		d.fail(lease, core.ResultOf("", core.MarkRejected(err)))
		return it, false
	}
	return it, true
}

// stop notes that nothing more is sent to the queue, or anywhere, because of a
// failure that concerns it.
func (d *delivery) stop(place string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if problemOf(err).everywhere() && d.over == nil {
		d.over = err
	}
	if d.shut[place] == nil {
		d.shut[place] = err
	}
}

// shutFor is why nothing is sent to the queue, or nil.
func (d *delivery) shutFor(place string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.shut[place]; err != nil {
		return err
	}
	return d.over
}

// whyShut is the answer for an event of a queue that a look-up shut.
func (d *delivery) whyShut(place string) core.Result { return d.resultOf(d.shutFor(place), true) }

func (d *delivery) resultOf(err error, alone bool) core.Result {
	r := problemOf(err).result(err, alone, d.s.queues.Fixed() != "")
	if r.Outcome == core.Unknown {
		r.Outcome = core.Unavailable // only a look-up was sent
	}
	if r.Outcome == core.Rejected {
		r.Outcome = core.Refused // the look-up isn't the event
	}
	return r
}

func (d *delivery) fail(lease int, r core.Result) { d.results[lease] = r }

// finish says why what was not attempted wasn't.
func (d *delivery) finish() {
	for i := range d.results {
		if r := &d.results[i]; r.Outcome == core.NotAttempted && r.Err == nil {
			if r.Err = errKeyFailed; d.over != nil {
				r.Err = fmt.Errorf("the call ended early: %w", d.over)
			}
		}
	}
}
