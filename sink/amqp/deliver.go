package amqp

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/rabbitmq/amqp091-go"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/crash"
)

// line is what a call needs of a channel.
type line interface {
	publish(m *message) (tag uint64, err error)
	poll() (answer confirmation, ok, lost bool)
	next(ctx context.Context) (confirmation, error)
	returned(id string) (reason string, ok bool)
	reason() *amqp091.Error
}

// broker is what a call needs of a session.
type broker interface {
	line(ctx context.Context) (line, error)
	release(l line)
	exchange(ctx context.Context, name string) (*exchangeState, error)
	learn(name string, err error)
	trust(name string, trusted bool)
	blocked() error
	dead() bool
	reason() error
	kill(err error)
	frame() int
}

// run sends everything, at most one message of a key at a time, and waits for
// the answers. write is held while a message is written.
func (d *delivery) run(ctx context.Context, b broker, write *writer) {
	var l line
	defer func() {
		if l != nil {
			b.release(l)
		}
	}()
	for {
		l = d.send(ctx, b, l, write)
		if len(d.inFlight) == 0 {
			if d.ended != nil || len(d.ready)+len(d.alone) == 0 {
				return
			}
			continue
		}
		crash.Here("amqp.sent")
		answer, err := l.next(ctx)
		switch {
		case err == nil:
			d.settle(b, l, answer)
		case errors.Is(err, errLost):
			d.lost(b, l)
			l = nil
		default:
			d.cut(b, l, err)
			return
		}
	}
}

// send publishes what may be sent now. It returns the channel, which it may
// have opened.
func (d *delivery) send(ctx context.Context, b broker, l line, write *writer) line {
	for d.ended == nil {
		if l != nil {
			d.settleReady(b, l)
		}
		lease, solo, ok := d.pick()
		if !ok {
			break
		}
		m, err := d.prepare(ctx, b, lease)
		if err != nil {
			d.refuse(lease, err)
			continue
		}
		if m.alone && !solo {
			d.alone = append(d.alone, lease)
			continue
		}
		m.alone = m.alone || solo
		if l == nil {
			if l, err = b.line(ctx); err != nil {
				l = nil
				d.end(lease, err)
				break
			}
		}
		if err := b.blocked(); err != nil {
			d.end(lease, err)
			break
		}
		if err := write.begin(ctx); err != nil {
			d.end(lease, core.MarkNotAttempted(err))
			break
		}
		tag, err := l.publish(m)
		write.end()
		if err == nil {
			d.sent(tag, m)
			continue
		}
		d.broken(b, l, m, err)
		l = nil
	}
	return l
}

// prepare makes the message of a lease and looks at where it goes.
func (d *delivery) prepare(ctx context.Context, b broker, lease int) (*message, error) {
	if err := ctx.Err(); err != nil {
		return nil, core.MarkNotAttempted(err)
	}
	ev := &d.leases[lease].Event
	if limit := d.s.cfg.MaxMessageBytes; limit > 0 && ev.Size() > limit {
		return nil, core.MarkRejected(&core.FieldError{Field: core.WholeEvent, Problem: "is too large", Limit: limit, Size: ev.Size()})
	}
	if limit := int(d.s.bodyLimit.Load()); limit > 0 && len(ev.Payload) > limit {
		return nil, core.MarkRejected(bodyTooLarge(len(ev.Payload), limit))
	}
	m, headers, err := d.s.message(&d.leases[lease], d.headers)
	d.headers = headers
	if err == nil {
		err = m.fits(b.frame())
	}
	if err != nil {
		return nil, core.MarkRejected(err)
	}
	x, err := b.exchange(ctx, m.exchange)
	if err != nil {
		return nil, err
	}
	m.lease = lease
	_, twice := d.ids[m.publishing.MessageId] // what comes back is told apart by its id
	m.alone = x.careful || twice
	return m, nil
}

func bodyTooLarge(size, limit int) error {
	return &core.FieldError{Field: "Payload", Problem: "is larger than the broker's max_message_size", Limit: limit, Size: size}
}

// refuse takes an event out that can't be sent: it fails alone, unless the
// reason is the broker's or the call's.
func (d *delivery) refuse(lease int, err error) {
	switch core.ResultOf("", err).Outcome {
	case core.Rejected, core.Refused:
		d.fail(lease, err)
	default:
		d.end(lease, err)
	}
}

// end stops sending. The lease is one that could have been sent.
func (d *delivery) end(lease int, err error) {
	d.ready = append(d.ready, lease)
	d.ended = err
}

// settleReady reads the answers that are there.
func (d *delivery) settleReady(b broker, l line) {
	for {
		answer, ok, _ := l.poll()
		if !ok {
			return // a lost channel shows again when it is used
		}
		d.settle(b, l, answer)
	}
}

// settle reads the broker's answer for one message.
func (d *delivery) settle(b broker, l line, answer confirmation) {
	m := d.landed(answer.tag)
	if m == nil {
		return
	}
	if reason, ok := l.returned(m.publishing.MessageId); ok {
		d.fail(m.lease, fmt.Errorf("no queue takes what goes to exchange %q with routing key %q: bind one: %s", m.exchange, m.key, reason))
		return
	}
	if !answer.ack {
		d.fail(m.lease, fmt.Errorf("RabbitMQ refused the message (basic.nack) for exchange %q with routing key %q: a queue is full or has failed", m.exchange, m.key))
		return
	}
	b.trust(m.exchange, true)
	d.delivered(m)
}

// broken deals with a message that could not be written as a whole, which takes
// no effect.
func (d *delivery) broken(b broker, l line, m *message, err error) {
	if !errors.Is(err, amqp091.ErrClosed) { // else nothing of it was written
		b.kill(fmt.Errorf("writing a message: %w", err))
	}
	d.ready = append(d.ready, m.lease)
	d.lost(b, l)
}

// maxLosses bounds the channels that end before a message was under way on them.
const maxLosses = 3

// lost deals with a channel that has ended: what was under way is unknown, but
// for the message that the broker took offence at, where that is certain.
func (d *delivery) lost(b broker, l line) {
	d.drain(b, l)
	why := l.reason()
	if why == nil || b.dead() || !why.Server {
		err := b.reason()
		for tag := range d.inFlight {
			d.fail(d.landed(tag).lease, core.MarkUnknown(err))
		}
		d.ended = core.MarkUnavailable(err)
		return
	}
	err := fmt.Errorf("RabbitMQ closed the channel: %w", why)
	if len(d.inFlight) == 0 {
		if d.losses++; d.losses == maxLosses {
			d.ended = core.MarkUnavailable(err)
		}
	}
	guilty := d.blame(b, why)
	for tag, m := range d.inFlight {
		d.landed(tag)
		reason, certain := guilty[m.lease]
		switch {
		case certain:
			d.fail(m.lease, reason)
		default:
			d.fail(m.lease, core.MarkUnknown(err))
		}
	}
}

// drain reads the answers that came before a channel ended.
func (d *delivery) drain(b broker, l line) {
	for {
		answer, err := l.next(context.Background())
		if err != nil {
			return
		}
		d.settle(b, l, answer)
	}
}

// cut ends a call whose context has ended: what has no answer yet is unknown.
func (d *delivery) cut(b broker, l line, err error) {
	d.settleReady(b, l)
	for tag := range d.inFlight {
		m := d.landed(tag)
		d.fail(m.lease, core.MarkUnknown(fmt.Errorf("waiting for the confirmation: %w", err)))
	}
	if d.ended == nil {
		d.ended = core.MarkNotAttempted(err)
	}
}

// writer ends a write that is under way when its call ends.
type writer struct {
	sock interface{ hasten() }
	mu   sync.Mutex
	busy bool
}

// begin is called before a write. Its error is that of the call.
func (w *writer) begin(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	w.busy = true
	return nil
}

func (w *writer) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy = false
}

// interrupt is called when the call has ended.
func (w *writer) interrupt() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busy {
		w.sock.hasten()
	}
}
