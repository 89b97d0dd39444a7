package sqs

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/gooutbox/outbox/core"
)

// pack puts messages into batches: those of one queue, in order, up to the
// limits of a batch.
func pack(items []item) [][]item {
	var batches [][]item
	type state struct{ batch, bytes int }
	open := map[*queue]state{}
	for _, it := range items {
		at, ok := open[it.queue]
		if !ok || len(batches[at.batch]) == maxEntries || at.bytes+it.message.size > maxBatchBytes {
			at = state{batch: len(batches)}
			batches = append(batches, nil)
		}
		at.bytes += it.message.size
		batches[at.batch] = append(batches[at.batch], it)
		open[it.queue] = at
	}
	return batches
}

// send sends a batch and answers for its events. A batch that is refused as a
// whole, so that nothing of it was stored, is sent message by message, to find
// the one that is to blame.
func (d *delivery) send(ctx context.Context, batch []item) {
	q := batch[0].queue
	if err := d.shutFor(q.place); err != nil {
		for _, it := range batch {
			d.fail(it.lease, core.Result{Err: fmt.Errorf("not sent after another failed: %w", err)})
		}
		return
	}
	input := &awssqs.SendMessageBatchInput{QueueUrl: &q.url}
	for n := range batch {
		input.Entries = append(input.Entries, batch[n].message.entry(n))
	}
	var out *awssqs.SendMessageBatchOutput
	err := d.s.ask(ctx, func(ctx context.Context) (err error) {
		out, err = d.s.client.SendMessageBatch(ctx, input)
		return err
	})
	if err == nil {
		d.read(batch, out)
		return
	}
	p, err := problemOf(err), hint(fmt.Errorf("sending to queue %q: %w", q.name, err))
	if (p.kind == faulty || p.kind == puzzling) && len(batch) > 1 {
		for n := range batch {
			d.send(ctx, batch[n:n+1])
		}
		return
	}
	if p.kind == missing {
		d.s.known.forget(q.place)
	}
	if p.everywhere() || p.ofQueue() {
		d.stop(q.place, err)
	}
	for _, it := range batch {
		d.fail(it.lease, p.result(err, len(batch) == 1, d.s.queues.Fixed() != ""))
	}
}

// errNoAnswer is what an answer means that doesn't mention a message.
var errNoAnswer = errors.New("the answer of SQS doesn't mention the message, which may be in the queue")

// read takes the answer entry by entry. It believes nothing that it doesn't
// say, and nothing that it says twice.
func (d *delivery) read(batch []item, out *awssqs.SendMessageBatchOutput) {
	q := batch[0].queue
	said := make([]int, len(batch))
	answer := func(id *string, r core.Result) {
		n, err := strconv.Atoi(aws.ToString(id))
		if err != nil || n < 0 || n >= len(batch) {
			return
		}
		said[n]++
		d.fail(batch[n].lease, r)
	}
	for i := range out.Successful {
		e := &out.Successful[i]
		receipt := q.name + "/" + aws.ToString(e.MessageId)
		if number := aws.ToString(e.SequenceNumber); number != "" {
			receipt += "@" + number
		}
		answer(e.Id, core.Result{Outcome: core.Delivered, Receipt: receipt})
	}
	for i := range out.Failed {
		answer(out.Failed[i].Id, refusal(q, &out.Failed[i]))
	}
	for n, times := range said {
		if times != 1 {
			d.fail(batch[n].lease, core.Result{Outcome: core.Unknown, Err: fmt.Errorf("sending to queue %q: %w", q.name, errNoAnswer)})
		}
	}
}

// refusal is the result of an entry that failed in a batch that was answered.
func refusal(q *queue, e *types.BatchResultErrorEntry) core.Result {
	r := core.Result{
		Outcome: core.Refused,
		Err:     fmt.Errorf("sending to queue %q: SQS refused the message: %s: %.300s", q.name, aws.ToString(e.Code), aws.ToString(e.Message)),
	}
	switch code := plain(aws.ToString(e.Code)); {
	case isThrottle(code):
		r.Outcome, r.RetryAfter = core.Throttled, throttlePause
	case e.SenderFault && !isDenial(code) && !unaccepted[code]:
		r.Outcome = core.Rejected
	}
	return r
}
