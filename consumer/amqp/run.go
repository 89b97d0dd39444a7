package amqp

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/gooutbox/outbox/consumer"
)

// Run handles messages until ctx ends: it then takes no more, lets running
// handlers end, up to Config.Drain, gives back what was not handled, and returns
// nil. A connection that ends, or can't be made, is made again after a backoff.
func Run(ctx context.Context, cfg Config, handle consumer.Handler) error {
	if err := cfg.Validate(); err != nil {
		return fmt.Errorf("configuring the consumer: %w", err)
	}
	cfg = cfg.withDefaults()
	wait := cfg.Retry.Backoff()
	for ctx.Err() == nil {
		s := &session{cfg: cfg, handle: handle}
		began := time.Now()
		if err := s.run(ctx); err != nil {
			cfg.Logger.WarnContext(ctx, "consuming is interrupted", "queue", cfg.Queue, "error", err)
		}
		if time.Since(began) > cfg.Retry.MaxBackoff {
			wait = cfg.Retry.Backoff()
		}
		if ctx.Err() == nil {
			consumer.Sleep(ctx, nil, wait())
		}
	}
	return nil
}

// session is the life of one channel.
type session struct {
	cfg    Config
	handle consumer.Handler
	conn   *amqp091.Connection
	ch     *amqp091.Channel
	tag    string
}

func (s *session) run(ctx context.Context) (err error) {
	if s.conn, err = s.cfg.Dial(); err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	defer func() { _ = s.conn.CloseDeadline(time.Now().Add(closeTime)) }() // what wasn't acknowledged comes again
	if s.ch, err = s.conn.Channel(); err != nil {
		return fmt.Errorf("opening a channel: %w", err)
	}
	if err = s.ch.Qos(s.cfg.Prefetch, 0, false); err != nil {
		return fmt.Errorf("setting the prefetch: %w", err)
	}
	closed := s.ch.NotifyClose(make(chan *amqp091.Error, 1))
	s.tag = s.cfg.Consumer + "-" + rand.Text()
	messages, err := s.ch.Consume(s.cfg.Queue, s.tag, false, false, false, false, nil)
	if err != nil {
		return fmt.Errorf("consuming the queue: %w", err)
	}
	work, release := consumer.Draining(ctx, s.cfg.Drain)
	defer release()
	// When the channel ends nothing can be acknowledged any more: handlers end.
	work, lost := context.WithCancelCause(work)
	defer lost(nil)
	reason := make(chan error, 1)
	go func() {
		select {
		case e, ok := <-closed:
			var err error
			if ok {
				err = e
			}
			reason <- err
			lost(errors.Join(errLost, err))
		case <-work.Done():
			reason <- nil
		}
	}()
	s.consume(ctx, work, messages)
	lost(nil)
	if err := <-reason; err != nil || ctx.Err() != nil {
		return err
	}
	return errors.New("the broker ended the consumer: was the queue deleted?")
}

var errLost = errors.New("the channel ended")

// closeTime bounds the closing of a connection.
const closeTime = 5 * time.Second

// consume hands messages to the lanes of their keys until ctx or the channel
// ends, and waits for the lanes.
func (s *session) consume(ctx, work context.Context, messages <-chan amqp091.Delivery) {
	lanes := consumer.NewLanes(s.cfg.Lanes, s.cfg.Prefetch)
	defer lanes.Wait()
	take := func(m amqp091.Delivery) {
		d, err := Decode(m, s.cfg.Form)
		lanes.Go(d.AggregateID, func(skip bool) bool {
			if skip {
				err = consumer.ErrStopped
			}
			return s.settle(ctx, work, m, d, err)
		})
	}
	for {
		select {
		case m, ok := <-messages:
			if !ok {
				return
			}
			take(m)
		case <-ctx.Done():
			s.stop(messages)
			return
		}
	}
}

// stop lets the broker send no more. What it sent before and nobody handles is not
// acknowledged: the end of the connection gives it back, all at once and in its
// order, which one by one would not keep.
func (s *session) stop(messages <-chan amqp091.Delivery) {
	passed := make(chan struct{})
	go func() {
		defer close(passed)
		for range messages {
			continue
		}
	}()
	_ = s.ch.Cancel(s.tag, false) // if it fails the channel has ended, and so do the messages
	<-passed
}

// settle handles one message and acknowledges it or gives it up; or gives it
// back, and returns false. err is why it can't be handled, ErrStopped for one
// that is only given back: by the end of the connection where that is near.
func (s *session) settle(ctx, work context.Context, m amqp091.Delivery, d consumer.Delivery, err error) (done bool) {
	death, err := s.attempt(ctx, work, m, d, err)
	if errors.Is(err, consumer.ErrStopped) && ctx.Err() != nil {
		return false
	}
	if err == nil && death != nil {
		err = s.bury(ctx, work, m, death)
	}
	if done = err == nil; done {
		err = m.Ack(false)
	} else {
		err = m.Nack(false, true)
	}
	if err != nil && work.Err() == nil {
		s.cfg.Logger.WarnContext(work, "acknowledging a message failed, it comes again", "queue", s.cfg.Queue, "event", d.ID, "error", err)
	}
	return done
}

func (s *session) attempt(ctx, work context.Context, m amqp091.Delivery, d consumer.Delivery, err error) (*consumer.Death, error) {
	switch n := deliveries(m); {
	case errors.Is(err, consumer.ErrStopped):
		return nil, err
	case err != nil:
		return consumer.Undecodable(err), nil
	case n >= s.cfg.MaxDeliveries:
		return consumer.Crashed(n), nil
	}
	hold, cancel := context.WithTimeout(ctx, s.cfg.Hold)
	defer cancel()
	return s.cfg.Retry.Attempt(work, hold.Done(), s.cfg.Logger, d, s.handle)
}

// bury publishes a dead letter until the broker has confirmed it. An error means
// that it was stopped before.
func (s *session) bury(ctx, work context.Context, m amqp091.Delivery, death *consumer.Death) error {
	key := s.cfg.Dead.RoutingKey
	if key == "" {
		key = m.RoutingKey
	}
	p := letter(m, death.Headers(nil, s.cfg.Queue, s.cfg.Consumer, time.Now()))
	wait := s.cfg.Retry.Backoff()
	for {
		err := s.publish(work, key, p)
		if err == nil {
			s.cfg.Logger.ErrorContext(work, "a message was given up", "queue", s.cfg.Queue, "message", m.MessageId,
				"code", death.Code, "attempts", death.Attempts, "reason", death.Reason)
			return nil
		}
		s.cfg.Logger.WarnContext(work, "publishing a dead letter failed, its lane waits", "queue", s.cfg.Queue, "message", m.MessageId, "error", err)
		if !consumer.Sleep(work, ctx.Done(), wait()) {
			return consumer.ErrStopped
		}
	}
}

// publishTime bounds one try to publish a dead letter.
const publishTime = 30 * time.Second

// publish sends one message on a channel of its own: what is wrong with it, such
// as an exchange that doesn't exist, must not end the one that consumes.
func (s *session) publish(ctx context.Context, key string, p amqp091.Publishing) error {
	ctx, cancel := context.WithTimeout(ctx, publishTime)
	defer cancel()
	ch, err := s.conn.Channel()
	if err != nil {
		return fmt.Errorf("opening a channel: %w", err)
	}
	defer func() { _ = ch.Close() }() // the answer has come, or doesn't count
	if err := ch.Confirm(false); err != nil {
		return fmt.Errorf("asking for confirmations: %w", err)
	}
	returned := ch.NotifyReturn(make(chan amqp091.Return, 1))
	closed := ch.NotifyClose(make(chan *amqp091.Error, 1))
	confirmation, err := ch.PublishWithDeferredConfirmWithContext(ctx, s.cfg.Dead.Exchange, key, true, false, p)
	if err != nil {
		return fmt.Errorf("publishing: %w", err)
	}
	select {
	case <-confirmation.Done():
	case <-ctx.Done():
		return fmt.Errorf("waiting for the confirmation: %w", ctx.Err())
	}
	select {
	case r := <-returned: // it comes before the confirmation
		if r.ReplyCode != 0 {
			return fmt.Errorf("no queue takes it: %d %s", r.ReplyCode, r.ReplyText)
		}
	default:
	}
	if !confirmation.Acked() {
		select {
		case e := <-closed:
			if e != nil {
				return fmt.Errorf("publishing: %w", e)
			}
		default:
		}
		return errors.New("the broker refused it")
	}
	return nil
}
