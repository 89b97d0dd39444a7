package amqp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/gooutbox/outbox/core"
)

// session is a connection to a broker that has let us in and on which the
// topology was declared.
type session struct {
	conn     *amqp091.Connection
	sock     *socket
	addr     string
	timeout  time.Duration
	frameMax int
	// done is closed when the connection has ended.
	done chan struct{}

	mu sync.Mutex
	// alarm is why the broker takes nothing, while it does.
	alarm string
	ended error
	idle  []*channel
	// exchanges holds what is known of those that were used.
	exchanges map[string]*exchangeState
	// asking is held by the one that looks for an exchange.
	asking chan struct{}
}

// maxIdle bounds the channels that wait for a call, or for confirmations whose
// call has ended.
const maxIdle = 32

// connect tries the addresses in turn, from the given one on. It returns which
// one worked.
func (s *Sink) connect(ctx context.Context, first int) (*session, int, error) {
	var errs []error
	deadline := time.Now().Add(s.cfg.Timeout)
	for n := range s.addrs {
		at := (first + n) % len(s.addrs)
		// Each of those that are left gets its share of the time.
		share := time.Until(deadline) / time.Duration(len(s.addrs)-n)
		se, err := s.open(ctx, s.addrs[at], share)
		if err == nil {
			return se, at, nil
		}
		if ended := ctx.Err(); ended != nil {
			return nil, 0, core.MarkNotAttempted(ended)
		}
		errs = append(errs, fmt.Errorf("%s: %w", s.addrs[at].hostPort, err))
	}
	return nil, first, core.MarkUnavailable(fmt.Errorf("connecting to RabbitMQ: %w", errors.Join(errs...)))
}

func (s *Sink) open(ctx context.Context, a address, within time.Duration) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	nc, err := dial(ctx, a, s.cfg.TLS)
	if err != nil {
		return nil, err
	}
	if deadline, ok := ctx.Deadline(); ok {
		_ = nc.SetDeadline(deadline) // the client takes it away when it is let in
	}
	stop := context.AfterFunc(ctx, func() { _ = nc.Close() })
	defer stop()
	sock := &socket{Conn: nc, patience: 3 * s.cfg.Heartbeat}
	login := []amqp091.Authentication{&amqp091.PlainAuth{Username: a.user, Password: a.password}}
	if s.cfg.External {
		login = []amqp091.Authentication{&amqp091.ExternalAuth{}}
	}
	properties := amqp091.NewConnectionProperties()
	properties["connection_name"] = s.cfg.ConnectionName
	conn, err := amqp091.Open(sock, amqp091.Config{
		SASL: login, Vhost: a.vhost, Heartbeat: s.cfg.Heartbeat, FrameSize: frameSize, Locale: "en_US", Properties: properties,
	})
	if err != nil {
		_ = nc.Close()
		return nil, s.refusal(a, err)
	}
	se := &session{
		conn: conn, sock: sock, addr: a.hostPort, timeout: s.cfg.Timeout, frameMax: conn.Config.FrameSize,
		done: make(chan struct{}), exchanges: map[string]*exchangeState{}, asking: make(chan struct{}, 1),
	}
	go se.watch(conn.NotifyBlocked(make(chan amqp091.Blocking, 1)), conn.NotifyClose(make(chan *amqp091.Error, 1)))
	if !s.cfg.Topology.empty() {
		if err := se.declare(ctx, s.cfg.Topology); err != nil {
			se.kill(err)
			return nil, err
		}
	}
	return se, nil
}

// frameSize is what RabbitMQ offers by default.
const frameSize = 131072

// refusal says what to do about a broker that doesn't let us in.
func (s *Sink) refusal(a address, err error) error {
	who := fmt.Sprintf("user %q", a.user)
	if s.cfg.External {
		who = "the certificate"
	}
	switch {
	case errors.Is(err, amqp091.ErrSASL):
		return fmt.Errorf("logging in: the broker offers neither of the mechanisms that are configured: %w", err)
	case errors.Is(err, amqp091.ErrCredentials):
		return fmt.Errorf("logging in as %s: it is not let in, check user and password: %w", who, err)
	}
	if e, ok := errors.AsType[*amqp091.Error](err); ok && e.Server {
		switch e.Code {
		case amqp091.AccessRefused:
			return fmt.Errorf("logging in as %s: it is not let in, check user and password: %w", who, err)
		case amqp091.NotAllowed:
			return fmt.Errorf("opening virtual host %q as %s: it doesn't exist, or is not open to it: %w", a.vhost, who, err)
		}
	}
	return fmt.Errorf("opening a session: %w", err)
}

func (se *session) watch(blocked chan amqp091.Blocking, closed chan *amqp091.Error) {
	defer close(se.done)
	for blocked != nil || closed != nil {
		select {
		case b, ok := <-blocked:
			if !ok {
				blocked = nil
				continue
			}
			se.mu.Lock()
			se.alarm = ""
			if b.Active {
				se.alarm = "no reason given"
				if b.Reason != "" {
					se.alarm = b.Reason
				}
			}
			se.mu.Unlock()
		case err, ok := <-closed:
			if !ok {
				closed = nil
				continue
			}
			se.fail(err)
		}
	}
}

// fail notes the first reason why the session ended.
func (se *session) fail(err error) {
	se.mu.Lock()
	defer se.mu.Unlock()
	if se.ended == nil {
		se.ended = err
	}
}

// kill ends the connection without a word.
func (se *session) kill(err error) {
	se.fail(err)
	_ = se.sock.Close()
}

// close ends it in an orderly way, where the broker answers soon.
func (se *session) close() {
	_ = se.conn.CloseDeadline(time.Now().Add(grace))
	se.kill(ErrClosed)
	<-se.done
}

func (se *session) dead() bool { return se.conn.IsClosed() }

// reason says why the session is dead.
func (se *session) reason() error {
	se.mu.Lock()
	defer se.mu.Unlock()
	if se.ended == nil {
		return fmt.Errorf("the connection to %s ended", se.addr)
	}
	return fmt.Errorf("the connection to %s ended: %w", se.addr, se.ended)
}

// blocked returns an error while the broker takes nothing because of an alarm.
func (se *session) blocked() error {
	se.mu.Lock()
	defer se.mu.Unlock()
	if se.alarm == "" {
		return nil
	}
	return core.MarkUnavailable(fmt.Errorf("RabbitMQ takes no messages at %s (%s): see its alarms for memory and disk", se.addr, se.alarm))
}

// ask runs a question to the broker that takes no context. When it isn't
// answered in time the session ends, unless an alarm explains it. left gets an
// answer that nobody waits for any more.
func ask[T any](ctx context.Context, se *session, what string, question func() (T, error), left func(T)) (T, error) {
	var none T
	if err := se.blocked(); err != nil {
		return none, err
	}
	type answer struct {
		value T
		err   error
	}
	answers, gone := make(chan answer), make(chan struct{})
	go func() {
		v, err := question()
		select {
		case answers <- answer{v, err}:
		case <-gone:
			if err == nil && left != nil {
				left(v)
			}
		}
	}()
	timer := time.NewTimer(se.timeout)
	defer timer.Stop()
	select {
	case a := <-answers:
		if a.err != nil && se.dead() {
			return none, core.MarkUnavailable(fmt.Errorf("%s: %w", what, se.reason()))
		}
		return a.value, a.err
	case <-ctx.Done():
		close(gone)
		return none, core.MarkNotAttempted(ctx.Err())
	case <-timer.C:
		close(gone)
		if err := se.blocked(); err != nil {
			return none, err
		}
		err := fmt.Errorf("%s: no answer from %s within %v", what, se.addr, se.timeout)
		se.kill(err)
		return none, core.MarkUnavailable(err)
	}
}

func (se *session) declare(ctx context.Context, t Topology) error {
	_, err := ask(ctx, se, "declaring exchanges and queues", func() (struct{}, error) {
		ch, err := se.conn.Channel()
		if err != nil {
			return struct{}{}, fmt.Errorf("opening a channel: %w", err)
		}
		if err := t.declare(ch); err != nil {
			return struct{}{}, err
		}
		return struct{}{}, ch.Close()
	}, nil)
	return err
}
