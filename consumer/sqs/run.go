package sqs

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/gooutbox/outbox/consumer"
)

// Run handles messages until ctx ends: it then receives no more, lets running
// handlers end, up to Config.Drain, gives back what was not handled, and returns
// nil.
func Run(ctx context.Context, cfg Config, handle consumer.Handler) error {
	if err := cfg.Validate(); err != nil {
		return fmt.Errorf("configuring the consumer: %w", err)
	}
	cfg = cfg.withDefaults()
	work, release := consumer.Draining(ctx, cfg.Drain)
	defer release()
	r := &run{cfg: cfg, handle: handle, holder: newHolder(cfg), room: make(chan struct{}, cfg.Held)}
	extending := make(chan struct{})
	extend, stop := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(extending)
		r.holder.run(extend)
	}()
	lanes := consumer.NewLanes(cfg.Lanes, cfg.Held)
	r.receive(ctx, work, lanes)
	lanes.Wait()
	stop()
	<-extending
	return nil
}

type run struct {
	cfg    Config
	handle consumer.Handler
	holder *holder
	// room has an entry for each message that is held.
	room chan struct{}
}

// longPoll is the longest wait of a call for messages.
const longPoll = 20

// receive hands messages to the lanes of their keys until ctx ends.
func (r *run) receive(ctx, work context.Context, lanes *consumer.Lanes) {
	wait := r.cfg.Retry.Backoff()
	for ctx.Err() == nil {
		places := r.places(ctx)
		if places == 0 {
			return
		}
		began := time.Now()
		// What a call that ctx cuts short may have received comes again when its
		// visibility ends.
		out, err := r.cfg.Client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
			QueueUrl: &r.cfg.QueueURL, MaxNumberOfMessages: int32(places), WaitTimeSeconds: longPoll,
			VisibilityTimeout:     int32(r.cfg.Visibility / time.Second),
			MessageAttributeNames: []string{"All"}, MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
		})
		var messages []types.Message
		if err == nil {
			messages = out.Messages
			wait = r.cfg.Retry.Backoff()
		}
		for range places - len(messages) {
			<-r.room
		}
		if err != nil && ctx.Err() == nil {
			r.cfg.Logger.WarnContext(ctx, "receiving messages failed", "queue", r.name(), "error", err)
			consumer.Sleep(ctx, nil, wait())
		}
		for _, m := range messages {
			d, err := Decode(m, r.cfg.Form)
			key := group(m)
			if key == "" {
				key = d.AggregateID
			}
			held := r.holder.hold(work, aws.ToString(m.ReceiptHandle), began)
			lanes.Go(key, func(skip bool) bool {
				if skip {
					err = consumer.ErrStopped
				}
				return r.settle(ctx, held, m, d, err)
			})
		}
	}
}

// places takes room for the messages of one call, at least one; 0 if ctx ended.
func (r *run) places(ctx context.Context) int {
	select {
	case r.room <- struct{}{}:
	case <-ctx.Done():
		return 0
	}
	for n := 1; n < maxEntries; n++ {
		select {
		case r.room <- struct{}{}:
		default:
			return n
		}
	}
	return maxEntries
}

// settle handles one message and deletes it or gives it up; or gives it back, and
// returns false. err is why it can't be handled, ErrStopped for one that is only
// given back.
func (r *run) settle(ctx, held context.Context, m types.Message, d consumer.Delivery, err error) (done bool) {
	receipt := aws.ToString(m.ReceiptHandle)
	defer func() {
		r.holder.release(receipt)
		<-r.room
	}()
	death, err := r.attempt(ctx, held, m, d, err)
	if err == nil && death != nil {
		err = r.bury(ctx, held, m, death)
	}
	call, cancel := context.WithTimeout(context.WithoutCancel(held), callTime)
	defer cancel()
	if done = err == nil; done {
		_, err = r.cfg.Client.DeleteMessage(call, &sqs.DeleteMessageInput{QueueUrl: &r.cfg.QueueURL, ReceiptHandle: &receipt})
	} else {
		if held.Err() != nil && ctx.Err() == nil {
			return false // it is another's
		}
		r.holder.release(receipt) // or it would be extended once more
		_, err = r.cfg.Client.ChangeMessageVisibilityBatch(call, r.holder.change([]string{receipt}, 0))
	}
	if err != nil {
		r.cfg.Logger.WarnContext(call, "settling a message failed, it comes again", "queue", r.name(), "event", d.ID, "error", err)
	}
	return done
}

// callTime bounds a call that settles a message.
const callTime = 10 * time.Second

func (r *run) attempt(ctx, held context.Context, m types.Message, d consumer.Delivery, err error) (*consumer.Death, error) {
	switch n := deliveries(m); {
	case errors.Is(err, consumer.ErrStopped):
		return nil, err
	case err != nil:
		return consumer.Undecodable(err), nil
	case n > r.cfg.MaxDeliveries:
		return consumer.Crashed(n), nil
	}
	stop, cancel := context.WithTimeout(ctx, r.cfg.Hold)
	defer cancel()
	return r.cfg.Retry.Attempt(held, stop.Done(), r.cfg.Logger, d, r.handle)
}

// bury sends a dead letter. An error means that it was stopped before.
func (r *run) bury(ctx, held context.Context, m types.Message, death *consumer.Death) error {
	wait := r.cfg.Retry.Backoff()
	for {
		_, err := r.cfg.Client.SendMessage(held, letter(m, r.cfg.DeadURL, death, r.name(), r.cfg.Consumer, time.Now()))
		if err == nil {
			r.cfg.Logger.ErrorContext(held, "a message was given up", "queue", r.name(), "message", aws.ToString(m.MessageId),
				"code", death.Code, "attempts", death.Attempts, "reason", death.Reason)
			return nil
		}
		r.cfg.Logger.WarnContext(held, "sending a dead letter failed, its lane waits", "queue", r.name(), "message", aws.ToString(m.MessageId), "error", err)
		if !consumer.Sleep(held, ctx.Done(), wait()) {
			return consumer.ErrStopped
		}
	}
}

// name of the queue, without the account.
func (r *run) name() string { return path.Base(r.cfg.QueueURL) }
