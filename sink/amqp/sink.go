package amqp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/calls"
	"github.com/gooutbox/outbox/internal/naming"
	"github.com/gooutbox/outbox/internal/wire"
)

// ErrClosed is the reason of what Deliver answers after Close.
var ErrClosed = errors.New("the AMQP sink is closed")

// Sink delivers to one RabbitMQ broker or cluster. Make it with New. Its methods
// may be called by several goroutines at once.
type Sink struct {
	cfg        Config
	addrs      []address
	exchange   exchanges
	routingKey *naming.Template
	encoder    *wire.Encoder
	// bodyLimit is the broker's max_message_size, once it has named it.
	bodyLimit atomic.Int64

	calls *calls.Calls
	// dialing is held by the one that connects.
	dialing chan struct{}

	mu      sync.Mutex
	current *session
	// at is the address that worked last.
	at int
}

var (
	_ core.Sink      = (*Sink)(nil)
	_ core.Describer = (*Sink)(nil)
	_ core.Checker   = (*Sink)(nil)
)

// New makes a sink. It doesn't connect: use Check for that. The error tells
// every problem of the configuration.
func New(cfg Config) (*Sink, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configuring the AMQP sink: %w", err)
	}
	cfg = cfg.withDefaults()
	s := &Sink{
		cfg: cfg, encoder: wire.NewEncoder(cfg.Form, wire.AMQPPrefix, cfg.Source),
		calls: calls.New(), dialing: make(chan struct{}, 1),
	}
	for _, u := range cfg.URLs {
		a, err := parseAddress(u)
		if err != nil {
			return nil, fmt.Errorf("configuring the AMQP sink: URLs %w", err)
		}
		s.addrs = append(s.addrs, a)
	}
	var err error
	if s.exchange, err = newExchanges(cfg.Exchange); err != nil {
		return nil, fmt.Errorf("configuring the AMQP sink: Exchange %w", err)
	}
	if s.routingKey, err = newRoutingKeys(cfg.RoutingKey); err != nil {
		return nil, fmt.Errorf("configuring the AMQP sink: RoutingKey %w", err)
	}
	return s, nil
}

// Capabilities declares PrefixPerKey.
func (s *Sink) Capabilities() core.Capabilities {
	return core.Capabilities{PrefixPerKey: true, MaxEventBytes: s.cfg.MaxMessageBytes}
}

// Deliver sends the events, see the package's promise. A delivered event's
// receipt is exchange/routing key.
//
// Outcomes: Rejected when the event makes no valid exchange, routing key,
// property or header, when its headers don't fit in one frame, or when it is
// larger than MaxMessageBytes or than the broker's max_message_size. Refused
// when its exchange doesn't exist or may not be written to, when no queue takes
// it, and when the broker answers basic.nack, as a full queue with reject-publish
// does; of an exchange with several queues some may have taken it then.
// Unavailable when no broker can be reached or lets us in, when the topology
// can't be declared, and while the broker takes nothing because of an alarm.
// Unknown when the message was sent and the connection, the channel or the
// context ended before its confirmation came.
func (s *Sink) Deliver(ctx context.Context, leases []core.Lease) []core.Result {
	results := make([]core.Result, len(leases))
	if len(leases) == 0 {
		return results
	}
	ctx, done, ok := s.calls.Begin(ctx)
	if !ok {
		for i := range results {
			results[i] = core.Result{Outcome: core.Unavailable, Err: ErrClosed}
		}
		return results
	}
	defer done()
	d := newDelivery(s, leases, results)
	se, err := s.session(ctx)
	if err != nil {
		d.ended = err
		d.finish()
		return results
	}
	w := &writer{sock: se.sock}
	stop := context.AfterFunc(ctx, w.interrupt)
	d.run(ctx, link{se}, w)
	if !stop() {
		se.sock.calm()
	}
	d.finish()
	return results
}

// session returns the connection, or makes one. The error is marked.
func (s *Sink) session(ctx context.Context) (*session, error) {
	if err := ctx.Err(); err != nil {
		return nil, core.MarkNotAttempted(err)
	}
	if se := s.alive(); se != nil {
		return se, nil
	}
	select {
	case s.dialing <- struct{}{}:
		defer func() { <-s.dialing }()
	case <-ctx.Done():
		return nil, core.MarkNotAttempted(ctx.Err())
	}
	if se := s.alive(); se != nil { // another call connected meanwhile
		return se, nil
	}
	s.mu.Lock()
	first := s.at
	s.mu.Unlock()
	se, at, err := s.connect(ctx, first)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	s.current, s.at = se, at
	return se, nil
}

func (s *Sink) alive() *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil || s.current.dead() {
		return nil
	}
	return s.current
}

// Check connects, logs in, declares the topology and, where the exchange is the
// same for all events, makes sure that it exists.
func (s *Sink) Check(ctx context.Context) error {
	ctx, done, ok := s.calls.Begin(ctx)
	if !ok {
		return ErrClosed
	}
	defer done()
	se, err := s.session(ctx)
	if err != nil {
		return err
	}
	if err := se.blocked(); err != nil {
		return err
	}
	if name, fixed := s.exchange.fixed(); fixed {
		_, err = se.exchange(ctx, name)
	}
	return err
}

// Close cuts off the calls that are under way, which then answer truthfully,
// waits for them, and ends the connection. Its error is that of ctx, if that
// ended first; the calls end all the same.
func (s *Sink) Close(ctx context.Context) error {
	if err := s.calls.Close(ctx, s.disconnect); err != nil {
		return fmt.Errorf("closing the AMQP sink: %w", err)
	}
	return nil
}

func (s *Sink) disconnect() {
	s.mu.Lock()
	se := s.current
	s.mu.Unlock()
	if se != nil {
		se.close()
	}
}

// link is a session as a call sees it.
type link struct{ *session }

func (k link) line(ctx context.Context) (line, error) {
	c, err := k.channel(ctx)
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (k link) release(l line) {
	if c, ok := l.(*channel); ok {
		k.put(c)
	}
}

func (k link) learn(name string, err error) { k.session.learn(name, err, refusedAge) }
func (k link) frame() int                   { return k.frameMax }
