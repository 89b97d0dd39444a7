package kafka

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/produce"

	"github.com/gooutbox/outbox/core"
)

// maxRequestBytes bounds one request, except that one event always fits. It
// bounds memory too: a request is built before it is sent.
const maxRequestBytes = 8 << 20

// run sends what was planned: wave after wave, the brokers side by side. It
// stops after a wave in which a broker took nothing.
func (d *delivery) run(ctx context.Context, waves [][]*queue) {
	for _, wave := range waves {
		byBroker := map[*broker][]*queue{}
		for _, q := range wave {
			if b := q.topic.leaders[q.partition]; b != nil {
				byBroker[b] = append(byBroker[b], q)
				continue
			}
			d.s.cluster.distrust(q.topic.name)
			d.stop(q, nil, core.Unavailable, d.where(q, kafkago.LeaderNotAvailable), 0)
		}
		var down atomic.Bool
		var wg sync.WaitGroup
		for b, queues := range byBroker {
			if len(byBroker) == 1 {
				down.Store(!d.send(ctx, b, queues))
				break
			}
			wg.Go(func() {
				if !d.send(ctx, b, queues) {
					down.Store(true)
				}
			})
		}
		wg.Wait()
		if down.Load() {
			return
		}
	}
}

// part is a record set within a request.
type part struct {
	q    *queue
	from int // where the queue was before
	set  []int
}

// send brings the queues to their broker, one request after the other. It
// returns false when the broker takes nothing.
func (d *delivery) send(ctx context.Context, b *broker, queues []*queue) bool {
	for {
		parts := d.fill(queues)
		if len(parts) == 0 {
			return true
		}
		if wait := b.mutedFor(); wait > 0 {
			d.stopAll(queues, parts, core.Throttled, fmt.Errorf("broker %s asks for a pause: its quota is used up", b.addr), wait)
			return false
		}
		res, sent, err := d.produce(ctx, b, parts)
		if over, ok := errors.AsType[*requestSizeError](err); ok && len(parts) == 1 && len(parts[0].set) == 1 {
			d.fail(d.items[parts[0].set[0]].lease, core.ResultOf("", core.MarkRejected(over.field())))
			continue
		}
		if err != nil {
			for _, p := range parts {
				d.s.cluster.distrust(p.q.topic.name)
			}
			outcome := core.Unavailable
			switch {
			case sent:
				outcome = core.Unknown
			case ctx.Err() != nil:
				outcome = core.NotAttempted
			}
			d.stopAll(queues, parts, outcome, fmt.Errorf("producing to broker %s: %w", b.addr, err), 0)
			return false
		}
		b.mute(time.Duration(res.ThrottleTimeMs) * time.Millisecond)
		ok := true
		for _, p := range parts {
			ok = d.settle(p, res) && ok
		}
		if !ok {
			d.stopAll(queues, nil, core.NotAttempted, nil, 0)
			return false
		}
	}
}

// fill takes one set of each queue, up to the size of a request.
func (d *delivery) fill(queues []*queue) []part {
	var parts []part
	total := 0
	for _, q := range queues {
		from := q.next
		set, size := q.take(d)
		if len(set) == 0 {
			continue
		}
		if total += size; total > maxRequestBytes && len(parts) > 0 {
			q.next = from
			break
		}
		parts = append(parts, part{q, from, set})
	}
	return parts
}

func (d *delivery) produce(ctx context.Context, b *broker, parts []part) (*produce.Response, bool, error) {
	now := time.Now()
	deadline := now.Add(d.s.cfg.RequestTimeout)
	if end, ok := ctx.Deadline(); ok {
		deadline = earlier(deadline, end)
	}
	wait := deadline.Sub(now)
	wait -= min(wait/4, time.Second)
	req := &produce.Request{Acks: d.s.acks, Timeout: int32(max(wait.Milliseconds(), 1))}
	at := map[string]int{}
	for _, p := range parts {
		name := p.q.topic.name
		i, ok := at[name]
		if !ok {
			i = len(req.Topics)
			at[name] = i
			req.Topics = append(req.Topics, produce.RequestTopic{Topic: name})
		}
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, produce.RequestPartition{
			Partition: p.q.partition,
			RecordSet: protocol.RecordSet{
				Attributes: d.s.compression,
				Records:    &recordReader{d: d, items: p.set},
			},
		})
	}
	m, sent, err := b.roundTrip(ctx, deadline, req)
	if err != nil {
		return nil, sent, err
	}
	return m.(*produce.Response), true, nil
}

// settle reads a broker's answer for one set. It returns false when the broker
// takes nothing at all.
func (d *delivery) settle(p part, res *produce.Response) bool {
	rp := answer(res, p.q)
	if rp == nil {
		d.stop(p.q, p.set, core.Unknown, d.where(p.q, errors.New("the broker's answer is missing")), 0)
		return true
	}
	v := verdictOf(kafkago.Error(rp.ErrorCode))
	if v == accepted {
		d.delivered(p, rp.BaseOffset)
		return true
	}
	err := d.where(p.q, brokerError(rp.ErrorCode, rp.ErrorMessage))
	switch v {
	case faulty:
		if len(p.set) > 1 {
			p.q.singly, p.q.next = p.q.next, p.from
			return true
		}
		it := &d.items[p.set[0]]
		if code := kafkago.Error(rp.ErrorCode); code == kafkago.MessageSizeTooLarge || code == kafkago.RecordListTooLarge {
			err = d.sizeError(p.q.topic, it)
		}
		d.fail(it.lease, core.ResultOf("", core.MarkRejected(err)))
	case moved:
		d.s.cluster.distrust(p.q.topic.name)
		d.stop(p.q, p.set, core.Unavailable, err, 0)
	case refused:
		if kafkago.Error(rp.ErrorCode) == kafkago.TopicAuthorizationFailed {
			err = fmt.Errorf("no right to write, allow WRITE on the topic: %w", err)
		}
		d.stop(p.q, p.set, core.Refused, err, 0)
	case unavailable:
		d.stop(p.q, p.set, core.Unavailable, err, 0)
		return false
	default:
		d.s.cluster.distrust(p.q.topic.name)
		d.stop(p.q, p.set, core.Unknown, err, 0)
	}
	return true
}

// sizeError names the limit, if it is known and explains the refusal: the topic
// may have got another one since.
func (d *delivery) sizeError(t *topic, it *item) error {
	d.s.cluster.distrust(t.name)
	limit := 0
	if t.exact && it.size() > t.bytes {
		limit = t.bytes
	}
	return tooLarge(t.name, it, limit)
}

func (d *delivery) delivered(p part, base int64) {
	prefix := p.q.topic.name + "-" + strconv.Itoa(int(p.q.partition)) + "@"
	for n, i := range p.set {
		d.results[d.items[i].lease] = core.Result{Outcome: core.Delivered, Receipt: prefix + strconv.FormatInt(base+int64(n), 10)}
	}
}

// stop ends a queue: the set gets the outcome, what comes after it stays as not
// attempted.
func (d *delivery) stop(q *queue, set []int, outcome core.Outcome, err error, after time.Duration) {
	if set == nil {
		set, _ = q.take(d)
	}
	for _, i := range set {
		d.fail(d.items[i].lease, core.Result{Outcome: outcome, Err: err, RetryAfter: after})
	}
	for ; q.next < len(q.items); q.next++ {
		d.fail(d.items[q.items[q.next]].lease, core.Result{Err: err})
	}
}

// stopAll ends all queues of a broker; parts were in the request that failed.
func (d *delivery) stopAll(queues []*queue, parts []part, outcome core.Outcome, err error, after time.Duration) {
	for _, p := range parts {
		d.stop(p.q, p.set, outcome, err, after)
	}
	for _, q := range queues {
		d.stop(q, []int{}, core.NotAttempted, err, 0)
	}
}

func (d *delivery) where(q *queue, err error) error {
	return fmt.Errorf("topic %q, partition %d: %w", q.topic.name, q.partition, err)
}

func answer(res *produce.Response, q *queue) *produce.ResponsePartition {
	for i := range res.Topics {
		if res.Topics[i].Topic != q.topic.name {
			continue
		}
		for j := range res.Topics[i].Partitions {
			if rp := &res.Topics[i].Partitions[j]; rp.Partition == q.partition {
				return rp
			}
		}
	}
	return nil
}
