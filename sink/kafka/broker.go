package kafka

import (
	"context"
	"sync"
	"time"

	"github.com/segmentio/kafka-go/protocol"
)

// broker is one address with its idle connections. As many are opened as there
// are requests at the same time.
type broker struct {
	addr string
	dial *dialer

	mu     sync.Mutex
	idle   []*conn
	closed bool
	// muted is until when the broker asked to be left alone.
	muted time.Time
}

// roundTrip sends one request on a connection of its own, see conn.roundTrip.
func (b *broker) roundTrip(ctx context.Context, deadline time.Time, req protocol.Message) (res protocol.Message, sent bool, err error) {
	c := b.take()
	fresh := c == nil
	if fresh {
		if c, err = b.dial.dial(ctx, b.addr, deadline); err != nil {
			if ended := ctx.Err(); ended != nil {
				err = ended
			}
			return nil, false, err
		}
	}
	res, sent, err = c.roundTrip(ctx, deadline, req)
	if err != nil {
		if fresh && b.dial.sasl == nil {
			err = hintSASL(err)
		}
		_ = c.pc.Close()
		if ctx.Err() == nil {
			b.drop() // they lead to the same place
		}
		return nil, sent, err
	}
	b.put(c)
	return res, sent, nil
}

// take returns an idle connection that works, or nil.
func (b *broker) take() *conn {
	for {
		b.mu.Lock()
		n := len(b.idle)
		if n == 0 {
			b.mu.Unlock()
			return nil
		}
		c := b.idle[n-1]
		b.idle[n-1] = nil
		b.idle = b.idle[:n-1]
		b.mu.Unlock()
		if c.usable(time.Now()) {
			return c
		}
		_ = c.pc.Close()
	}
}

func (b *broker) put(c *conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		_ = c.pc.Close()
		return
	}
	// The oldest idle ones lie at the front.
	for len(b.idle) > 0 && c.used.Sub(b.idle[0].used) > idleTimeout {
		_ = b.idle[0].pc.Close()
		b.idle = b.idle[1:]
	}
	b.idle = append(b.idle, c)
}

// drop closes the idle connections.
func (b *broker) drop() {
	b.mu.Lock()
	idle := b.idle
	b.idle = nil
	b.mu.Unlock()
	for _, c := range idle {
		_ = c.pc.Close()
	}
}

// close also closes each connection that is still in use when it comes back.
func (b *broker) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.drop()
}

// mute keeps to what the broker asked for in an answer.
func (b *broker) mute(d time.Duration) {
	if d <= 0 {
		return
	}
	b.mu.Lock()
	b.muted = time.Now().Add(d)
	b.mu.Unlock()
}

// mutedFor is how long the broker wants to be left alone.
func (b *broker) mutedFor() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return time.Until(b.muted)
}
