package sqs

import (
	"context"
	"fmt"
	"time"

	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
)

// checkName is asked for where no queue is known before the first event.
const checkName = "outbox-check"

// Check tells whether SQS answers and accepts the credentials, and, where the
// queue is the same for all events, whether it exists. Whether messages may be
// sent to it only the first one shows.
func (s *Sink) Check(ctx context.Context) error {
	ctx, done, ok := s.calls.Begin(ctx)
	if !ok {
		return ErrClosed
	}
	defer done()
	if place := s.queues.Fixed(); place != "" {
		s.known.forget(place)
		_, err := s.lookup(ctx, place, time.Time{})
		return err
	}
	name := checkName
	err := s.ask(ctx, func(ctx context.Context) error {
		_, err := s.client.GetQueueUrl(ctx, &awssqs.GetQueueUrlInput{QueueName: &name})
		return err
	})
	if err == nil || problemOf(err).kind == missing || problemOf(err).kind == denied {
		return nil
	}
	return fmt.Errorf("asking SQS for a queue: %w", err)
}

// hint adds what to do.
func hint(err error) error {
	if err == nil {
		return nil
	}
	switch problemOf(err).kind {
	case missing:
		return fmt.Errorf("create the queue, or correct its name, region or account: %w", err)
	case denied:
		return fmt.Errorf("allow sqs:SendMessage, sqs:GetQueueUrl and sqs:GetQueueAttributes on the queue, or give its URL: %w", err)
	}
	return err
}
