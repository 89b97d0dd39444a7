package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/saslauthenticate"
	"github.com/segmentio/kafka-go/protocol/saslhandshake"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"
)

func (s *SASL) mechanism() (sasl.Mechanism, error) {
	if s.Username == "" || s.Password == "" {
		return nil, errors.New("needs a username and a password")
	}
	var algorithm scram.Algorithm
	switch s.Mechanism {
	case Plain:
		return plain.Mechanism{Username: s.Username, Password: s.Password}, nil
	case ScramSHA256:
		algorithm = scram.SHA256
	case ScramSHA512:
		algorithm = scram.SHA512
	default:
		return nil, fmt.Errorf("has mechanism %q: use %s, %s or %s", s.Mechanism, Plain, ScramSHA256, ScramSHA512)
	}
	m, err := scram.Mechanism(algorithm, s.Username, s.Password)
	if err != nil {
		return nil, errors.New("has a username or password that SCRAM can't carry: it holds characters that SASLprep forbids")
	}
	return m, nil
}

func (c *conn) authenticate(ctx context.Context, deadline time.Time, mechanism sasl.Mechanism) error {
	m, _, err := c.roundTrip(ctx, deadline, &saslhandshake.Request{Mechanism: mechanism.Name()})
	if err != nil {
		return fmt.Errorf("asking for %s authentication: %w", mechanism.Name(), err)
	}
	if res := m.(*saslhandshake.Response); res.ErrorCode != 0 {
		return fmt.Errorf("asking for %s authentication: %w", mechanism.Name(), hintNoSASL(kafkago.Error(res.ErrorCode), res.Mechanisms))
	}
	session, data, err := mechanism.Start(sasl.WithMetadata(ctx, c.metadata()))
	if err != nil {
		return fmt.Errorf("authenticating: %w", err)
	}
	for done := false; !done; {
		started := time.Now()
		m, _, err := c.roundTrip(ctx, deadline, &saslauthenticate.Request{AuthBytes: data})
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("authenticating: the broker closed the connection: %w", kafkago.SASLAuthenticationFailed)
		} else if err != nil {
			return fmt.Errorf("authenticating: %w", err)
		}
		res := m.(*saslauthenticate.Response)
		if res.ErrorCode != 0 {
			return fmt.Errorf("authenticating, check username and password: %w", brokerError(res.ErrorCode, res.ErrorMessage))
		}
		if done, data, err = session.Next(ctx, res.AuthBytes); err != nil {
			return fmt.Errorf("authenticating, check username and password: %w", err)
		}
		if res.SessionLifetimeMs > 0 {
			// Leave it before the broker cuts it off in the middle of a request.
			c.until = started.Add(time.Duration(res.SessionLifetimeMs) * time.Millisecond * 8 / 10)
		}
	}
	return nil
}

func (c *conn) metadata() *sasl.Metadata {
	host, port, _ := net.SplitHostPort(c.wire.RemoteAddr().String())
	n, _ := strconv.Atoi(port)
	return &sasl.Metadata{Host: host, Port: n}
}

// brokerError is a broker's code with the sentence that it may have sent along.
func brokerError(code int16, message string) error {
	if message == "" {
		return kafkago.Error(code)
	}
	return fmt.Errorf("%w: %s", kafkago.Error(code), message)
}
