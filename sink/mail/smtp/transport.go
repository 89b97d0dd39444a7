package smtp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/calls"
	mailsink "github.com/gooutbox/outbox/sink/mail"
)

// ErrClosed is the reason of what Send answers after Close.
var ErrClosed = errors.New("the SMTP transport is closed")

// Transport sends by one SMTP server. Make it with New. Its methods may be called
// by several goroutines at once.
type Transport struct {
	cfg   Config
	calls *calls.Calls
	// slots are of the connections in use. A new one is opened only where none is
	// idle, so that they bound all.
	slots chan struct{}

	mu   sync.Mutex
	idle []*session // the one that was used last is at the end
}

var (
	_ mailsink.Transport = (*Transport)(nil)
	_ core.Checker       = (*Transport)(nil)
)

// New makes a transport. It doesn't connect: use Check for that. The error tells
// every problem of cfg.
func New(cfg Config) (*Transport, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configuring SMTP: %w", err)
	}
	cfg = cfg.withDefaults()
	return &Transport{cfg: cfg, calls: calls.New(), slots: make(chan struct{}, cfg.MaxConnections)}, nil
}

// Check connects and authenticates.
func (t *Transport) Check(ctx context.Context) error {
	ctx, done, ok := t.calls.Begin(ctx)
	if !ok {
		return ErrClosed
	}
	defer done()
	s, _, err := t.take(ctx)
	if err != nil {
		return err
	}
	release := s.within(ctx)
	err = s.client.Noop()
	if usable := release(); err != nil || !usable {
		t.drop(s)
	} else {
		t.giveBack(s)
	}
	if err != nil {
		return fmt.Errorf("asking the SMTP server: %w", tidy(err))
	}
	return nil
}

// Close ends what is being sent and closes all connections.
func (t *Transport) Close(ctx context.Context) error {
	return t.calls.Close(ctx, func() {
		t.mu.Lock()
		idle := t.idle
		t.idle = nil
		t.mu.Unlock()
		var wg sync.WaitGroup
		for _, s := range idle {
			s.idle.Stop()
			wg.Go(s.quit)
		}
		wg.Wait()
	})
}

// errNoSlot is why nothing was sent: all connections were in use.
var errNoSlot = errors.New("all connections to the SMTP server are in use")

// take waits for the right to a connection, and returns an idle one, or opens one.
func (t *Transport) take(ctx context.Context) (s *session, reused bool, err error) {
	select {
	case t.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, false, fmt.Errorf("%w: %w", errNoSlot, ctx.Err())
	}
	t.mu.Lock()
	for len(t.idle) > 0 && s == nil {
		s = t.idle[len(t.idle)-1]
		t.idle = t.idle[:len(t.idle)-1]
		s.idle.Stop()
	}
	t.mu.Unlock()
	if s != nil {
		return s, true, nil
	}
	s, err = t.open(ctx)
	if err != nil {
		<-t.slots
		return nil, false, err
	}
	return s, false, nil
}

// replace opens a new connection in place of one that is of no use.
func (t *Transport) replace(ctx context.Context, s *session) (*session, error) {
	s.close()
	fresh, err := t.open(ctx)
	if err != nil {
		<-t.slots
	}
	return fresh, err
}

// giveBack keeps a connection that is ready for another mail.
func (t *Transport) giveBack(s *session) {
	defer func() { <-t.slots }()
	if s.mails >= t.cfg.MaxMails {
		s.quit()
		return
	}
	_ = s.conn.SetDeadline(time.Time{})
	t.mu.Lock()
	defer t.mu.Unlock()
	s.idle = time.AfterFunc(t.cfg.IdleTimeout, func() { t.expire(s) })
	t.idle = append(t.idle, s)
}

// drop closes a connection that can't be used any more.
func (t *Transport) drop(s *session) {
	s.close()
	<-t.slots
}

// expire closes a connection unless it was taken meanwhile.
func (t *Transport) expire(s *session) {
	t.mu.Lock()
	found := false
	for i, one := range t.idle {
		if one == s {
			t.idle = append(t.idle[:i], t.idle[i+1:]...)
			found = true
			break
		}
	}
	t.mu.Unlock()
	if found {
		s.quit()
	}
}
