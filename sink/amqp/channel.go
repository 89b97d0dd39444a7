package amqp

import (
	"context"
	"errors"
	"fmt"

	"github.com/rabbitmq/amqp091-go"

	"github.com/gooutbox/outbox/core"
)

// maxInFlight bounds the unconfirmed messages of a call: what the lists of a
// channel hold, so that the client, which fills them while it reads, never has
// to wait for us.
const maxInFlight = 512

// channel is an AMQP channel for confirmed messages, used by one call at a time.
type channel struct {
	se       *session
	ch       *amqp091.Channel
	confirms chan amqp091.Confirmation
	returns  chan amqp091.Return
	closed   chan *amqp091.Error
	// tag is that of the last message, and waiting how many have no answer.
	tag     uint64
	waiting int
	// unroutable holds the reasons of messages that came back, by their ids.
	unroutable map[string]string
}

// confirmation is the broker's answer for one message.
type confirmation struct {
	tag uint64
	ack bool
}

var errLost = errors.New("the channel is lost")

// channel takes one that waits for work, or opens one.
func (se *session) channel(ctx context.Context) (*channel, error) {
	if err := se.blocked(); err != nil {
		return nil, err
	}
	if c := se.take(); c != nil {
		return c, nil
	}
	c, err := ask(ctx, se, "opening a channel", se.openChannel, se.put)
	if err == nil {
		return c, nil
	}
	if core.ResultOf("", err).Outcome == core.Refused { // it has no mark
		err = core.MarkUnavailable(fmt.Errorf("opening a channel at %s: %w", se.addr, err))
	}
	return nil, err
}

func (se *session) openChannel() (*channel, error) {
	ch, err := se.conn.Channel()
	if err != nil {
		return nil, err
	}
	if err := ch.Confirm(false); err != nil {
		return nil, err
	}
	return &channel{
		se: se, ch: ch,
		confirms: ch.NotifyPublish(make(chan amqp091.Confirmation, maxInFlight)),
		returns:  ch.NotifyReturn(make(chan amqp091.Return, maxInFlight)),
		closed:   ch.NotifyClose(make(chan *amqp091.Error, 1)),
	}, nil
}

// take returns an idle channel on which nothing is under way, or nil.
func (se *session) take() *channel {
	se.mu.Lock()
	defer se.mu.Unlock()
	kept := se.idle[:0]
	var found *channel
	for _, c := range se.idle {
		switch {
		case found != nil || !c.settle():
			kept = append(kept, c)
		case !c.ch.IsClosed():
			found = c
		}
	}
	clear(se.idle[len(kept):])
	se.idle = kept
	return found
}

// put gives a channel back. Confirmations that are missing still come, also
// while nobody reads them.
func (se *session) put(c *channel) {
	if c.ch.IsClosed() {
		return
	}
	se.mu.Lock()
	se.idle = append(se.idle, c)
	full := len(se.idle) > maxIdle
	se.mu.Unlock()
	if full {
		se.kill(errors.New("too many channels wait for confirmations"))
	}
}

// settle reads what came since the channel's call has ended, and tells whether
// nothing is under way any more. A closed channel counts as such.
func (c *channel) settle() bool {
	for {
		_, ok, lost := c.poll()
		switch {
		case lost:
			return true
		case !ok:
			clear(c.unroutable)
			return c.waiting == 0
		}
	}
}

func (c *channel) publish(m *message) (tag uint64, err error) {
	err = c.ch.PublishWithContext(context.Background(), m.exchange, m.key, true, false, m.publishing)
	if err != nil {
		return 0, err
	}
	c.tag++
	c.waiting++
	return c.tag, nil
}

// poll returns an answer that is there already. lost means that none will come
// any more.
func (c *channel) poll() (answer confirmation, ok, lost bool) {
	select {
	case confirm, ok := <-c.confirms:
		if !ok {
			return confirmation{}, false, true
		}
		return c.answered(confirm), true, false
	default:
		return confirmation{}, false, false
	}
}

// next waits for an answer. The error is errLost or that of ctx.
func (c *channel) next(ctx context.Context) (confirmation, error) {
	select {
	case confirm, ok := <-c.confirms:
		if !ok {
			return confirmation{}, errLost
		}
		return c.answered(confirm), nil
	case <-ctx.Done():
		return confirmation{}, ctx.Err()
	}
}

// answered looks for the message among those that came back first: "If the
// message is also published as mandatory, the basic.return is sent to the client
// before basic.ack", and so it is before a basic.nack
// (https://www.rabbitmq.com/docs/confirms), and the client keeps the order.
func (c *channel) answered(confirm amqp091.Confirmation) confirmation {
	c.waiting--
	for {
		select {
		case r, ok := <-c.returns:
			if !ok {
				c.returns = nil
				continue
			}
			if c.unroutable == nil {
				c.unroutable = map[string]string{}
			}
			c.unroutable[r.MessageId] = fmt.Sprintf("%d %s", r.ReplyCode, r.ReplyText)
			continue
		default:
		}
		return confirmation{confirm.DeliveryTag, confirm.Ack}
	}
}

// returned tells, after its confirmation, why a message came back.
func (c *channel) returned(id string) (reason string, ok bool) {
	reason, ok = c.unroutable[id]
	delete(c.unroutable, id)
	return reason, ok
}

// reason is why the channel is lost, after it is: nil without one.
func (c *channel) reason() *amqp091.Error {
	select {
	case err := <-c.closed:
		return err
	default:
		return nil
	}
}
