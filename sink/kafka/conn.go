package kafka

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/apiversions"
	"github.com/segmentio/kafka-go/protocol/produce"
	"github.com/segmentio/kafka-go/sasl"

	"github.com/gooutbox/outbox/internal/crash"
)

const (
	dialTimeout = 5 * time.Second
	// quietAfter is the age from which on an idle connection is looked at
	// before it is used again: the broker may have closed it.
	quietAfter = time.Second
	// idleTimeout is well below what brokers and load balancers allow.
	idleTimeout = time.Minute
)

// dialer opens connections that are ready for requests.
type dialer struct {
	tls      *tls.Config
	sasl     sasl.Mechanism
	clientID string
	// largest is the size of a request of events that is not sent, but answered
	// by a requestSizeError, when it is exceeded.
	largest int
}

// conn is a connection with at most one request under way.
//
// kafka-go's Transport is not used, for three reasons: it goes on with a
// request whose context has ended, it can't be told to refresh its metadata,
// and it doesn't tell whether a failed request had left the process. Its
// protocol package does the encoding here.
type conn struct {
	pc   *protocol.Conn
	wire *wireConn
	// used is when the last request ended.
	used time.Time
	// until is when the broker ends an authenticated session; zero is never.
	until time.Time
}

// wireConn notes how far a request got.
type wireConn struct {
	net.Conn
	wrote, failed bool
	producing     bool // the request carries events
	largest       int
}

func (w *wireConn) Read(b []byte) (int, error) {
	if w.producing {
		crash.Here("kafka.sent")
	}
	return w.Conn.Read(b)
}

// Write is given a request in pieces, of which the first begins with its size.
func (w *wireConn) Write(b []byte) (int, error) {
	if w.producing && !w.wrote && len(b) >= 4 {
		if size := int(binary.BigEndian.Uint32(b)); size > w.largest {
			w.failed = true
			return 0, &requestSizeError{size, w.largest}
		}
	}
	w.wrote = true
	n, err := w.Conn.Write(b)
	if err != nil {
		w.failed = true
	}
	return n, err
}

func (d *dialer) dial(ctx context.Context, addr string, deadline time.Time) (*conn, error) {
	deadline = earlier(deadline, time.Now().Add(dialTimeout))
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	nc, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("connecting to the broker: %w", err)
	}
	if d.tls != nil {
		if nc, err = d.handshake(ctx, nc, addr); err != nil {
			return nil, fmt.Errorf("securing the connection to %s: %w", addr, hintNoTLS(err))
		}
	}
	w := &wireConn{Conn: nc, largest: d.largest}
	c := &conn{pc: protocol.NewConn(w, d.clientID), wire: w, used: time.Now()}
	if err := d.prepare(ctx, c, deadline); err != nil {
		_ = c.pc.Close()
		return nil, fmt.Errorf("opening a session with %s: %w", addr, err)
	}
	return c, nil
}

func (d *dialer) handshake(ctx context.Context, nc net.Conn, addr string) (net.Conn, error) {
	cfg := d.tls
	if cfg.ServerName == "" {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			_ = nc.Close()
			return nil, err
		}
		cfg = cfg.Clone()
		cfg.ServerName = host
	}
	tc := tls.Client(nc, cfg)
	if err := tc.HandshakeContext(ctx); err != nil {
		_ = nc.Close()
		return nil, err
	}
	return tc, nil
}

// prepare agrees on versions and authenticates.
func (d *dialer) prepare(ctx context.Context, c *conn, deadline time.Time) error {
	m, _, err := c.roundTrip(ctx, deadline, new(apiversions.Request))
	if err != nil {
		if ctx.Err() != nil || errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("asking for its versions: %w", err)
		}
		return fmt.Errorf("asking for its versions, the broker ended the connection, does it want TLS: %w", err)
	}
	res := m.(*apiversions.Response)
	if res.ErrorCode != 0 {
		return fmt.Errorf("asking for its versions: %w", kafkago.Error(res.ErrorCode))
	}
	versions := make(map[protocol.ApiKey]int16, len(res.ApiKeys))
	for _, k := range res.ApiKeys {
		key := protocol.ApiKey(k.ApiKey)
		versions[key] = key.SelectVersion(k.MinVersion, k.MaxVersion)
	}
	if versions[protocol.Produce] < 3 {
		return errors.New("the broker is older than Kafka 0.11, which has no headers: upgrade it")
	}
	c.pc.SetVersions(versions)
	if d.sasl == nil {
		return nil
	}
	return c.authenticate(ctx, deadline, d.sasl)
}

// roundTrip sends one request and waits for its answer until the deadline or
// the end of ctx. sent tells, with an error, whether the request may have
// reached the broker as a whole; a request that was cut short never takes
// effect. After an error the connection must be closed.
func (c *conn) roundTrip(ctx context.Context, deadline time.Time, req protocol.Message) (res protocol.Message, sent bool, err error) {
	if err := ctx.Err(); err != nil {
		return nil, false, err
	}
	c.wire.wrote, c.wire.failed = false, false
	_, c.wire.producing = req.(*produce.Request)
	if err := c.pc.SetDeadline(deadline); err != nil {
		return nil, false, err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.pc.SetDeadline(time.Unix(1, 0)) })
	res, err = c.pc.RoundTrip(req)
	c.used = time.Now()
	if !stop() && err == nil {
		// The answer came, but the deadline of the connection is spoilt.
		c.until = c.used
	}
	if err != nil {
		if ended := ctx.Err(); ended != nil {
			err = ended
		} else if errors.Is(err, os.ErrDeadlineExceeded) {
			err = fmt.Errorf("no answer in time: %w", err)
		}
	}
	return res, c.wire.wrote && !c.wire.failed, err
}

// usable tells whether an idle connection can take a request.
func (c *conn) usable(now time.Time) bool {
	if !c.until.IsZero() && !now.Before(c.until) {
		return false
	}
	idle := now.Sub(c.used)
	if idle < quietAfter {
		return true
	}
	if idle > idleTimeout {
		return false
	}
	// A broker says nothing unasked: the read must run into its deadline.
	if c.pc.SetReadDeadline(now.Add(100*time.Microsecond)) != nil {
		return false
	}
	_, err := c.pc.Peek(1)
	return errors.Is(err, os.ErrDeadlineExceeded)
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
