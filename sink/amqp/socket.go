package amqp

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"time"
)

// socket bounds each write to the broker. The client writes while it holds
// locks that it needs to end a connection, so a write must never last for ever:
// under a memory alarm the broker stops to read.
type socket struct {
	net.Conn
	patience time.Duration

	mu sync.Mutex
	// hurry, if set, is when every write has to end.
	hurry time.Time
}

// grace is how long a write may still take when the call that waits for it has
// ended. A message that was cut off in the middle never takes effect, but the
// connection is lost.
const grace = time.Second

func (s *socket) Write(b []byte) (int, error) {
	s.mu.Lock()
	deadline := time.Now().Add(s.patience)
	if !s.hurry.IsZero() && s.hurry.Before(deadline) {
		deadline = s.hurry
	}
	err := s.SetWriteDeadline(deadline)
	s.mu.Unlock()
	if err != nil {
		return 0, err
	}
	return s.Conn.Write(b)
}

// hasten ends writes within the grace.
func (s *socket) hasten() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hurry = time.Now().Add(grace)
	_ = s.SetWriteDeadline(s.hurry) // a closed connection ends its writes by itself
}

// calm ends the haste.
func (s *socket) calm() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hurry = time.Time{}
}

// dial opens a connection to one broker, up to where AMQP begins.
func dial(ctx context.Context, a address, config *tls.Config) (net.Conn, error) {
	nc, err := new(net.Dialer).DialContext(ctx, "tcp", a.hostPort)
	if err != nil {
		return nil, fmt.Errorf("connecting to the broker: %w", err)
	}
	if !a.tls {
		return nc, nil
	}
	if config == nil {
		config = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if config.ServerName == "" {
		config = config.Clone()
		config.ServerName = a.host
	}
	tc := tls.Client(nc, config)
	if err := tc.HandshakeContext(ctx); err != nil {
		_ = nc.Close()
		return nil, fmt.Errorf("securing the connection to %s: %w", a.hostPort, err)
	}
	return tc, nil
}
