package sqs

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// queue is what is known of a queue. It never changes.
type queue struct {
	place, name, url string
	fifo             bool
	// limit is how large a message may be.
	limit   int
	checked time.Time
}

// directory remembers queues by name or URL.
type directory struct {
	mu     sync.Mutex
	queues map[string]*queue
}

func (d *directory) get(place string) *queue {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.queues[place]
}

func (d *directory) put(q *queue) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.queues) >= maxQueues {
		clear(d.queues)
	}
	d.queues[q.place] = q
}

func (d *directory) forget(place string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.queues, place)
}

// lookup returns a queue whose limit was read after `since`, or not longer ago
// than limitAge where since is zero. The error is a *requestError.
func (s *Sink) lookup(ctx context.Context, place string, since time.Time) (*queue, error) {
	old := s.known.get(place)
	if since.IsZero() {
		since = time.Now().Add(-limitAge)
	}
	if old != nil && old.checked.After(since) {
		return old, nil
	}
	q := &queue{place: place, name: nameOf(place), url: place, fifo: isFIFO(place), limit: maxBatchBytes, checked: time.Now()}
	switch {
	case old != nil:
		q.url = old.url
	case !isURL(place):
		var out *awssqs.GetQueueUrlOutput
		err := s.ask(ctx, func(ctx context.Context) (err error) {
			out, err = s.client.GetQueueUrl(ctx, &awssqs.GetQueueUrlInput{QueueName: &q.name})
			return err
		})
		if err != nil {
			return nil, hint(fmt.Errorf("looking for queue %q: %w", q.name, err))
		}
		q.url = aws.ToString(out.QueueUrl)
	}
	limit, err := s.readLimit(ctx, q.url)
	switch problem := problemOf(err); {
	case err == nil:
		q.limit = min(limit, maxBatchBytes)
	case problem.kind == denied:
		// SQS decides then.
	case old != nil && problem.kind != missing:
		return old, nil // sending will tell more
	default:
		s.known.forget(place)
		return nil, hint(fmt.Errorf("reading the limit of queue %q: %w", q.name, err))
	}
	s.known.put(q)
	return q, nil
}

// readLimit asks for the largest message that the queue takes.
func (s *Sink) readLimit(ctx context.Context, url string) (int, error) {
	var out *awssqs.GetQueueAttributesOutput
	err := s.ask(ctx, func(ctx context.Context) (err error) {
		out, err = s.client.GetQueueAttributes(ctx, &awssqs.GetQueueAttributesInput{
			QueueUrl: &url, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameMaximumMessageSize},
		})
		return err
	})
	if err != nil {
		return 0, err
	}
	if limit, malformed := strconv.Atoi(out.Attributes[string(types.QueueAttributeNameMaximumMessageSize)]); malformed == nil && limit > 0 {
		return limit, nil
	}
	return maxBatchBytes, nil // an answer without the limit tells nothing
}
