package kafka

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"syscall"

	kafkago "github.com/segmentio/kafka-go"
)

// A port that wants another way to connect only ends the connection, or answers
// what makes no sense. The hints ask for what is then probably wrong.

// hung tells whether the broker ended the connection instead of answering.
func hung(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// hintNoTLS explains why a handshake failed.
func hintNoTLS(err error) error {
	if _, other := errors.AsType[tls.RecordHeaderError](err); other || hung(err) {
		return fmt.Errorf("is this a port without TLS? Leave TLS out, or name the port that has it: %w", err)
	}
	return err
}

// hintNoSASL explains why a broker refused a mechanism.
func hintNoSASL(code kafkago.Error, offered []string) error {
	if code == kafkago.IllegalSASLState {
		return fmt.Errorf("is this a port without SASL? Leave SASL out, or name the port that has it: %w", code)
	}
	return fmt.Errorf("the broker offers %v: %w", offered, code)
}

// hintSASL explains why the first request of a connection on which nobody has
// logged in was not answered.
func hintSASL(err error) error {
	if hung(err) {
		return fmt.Errorf("the broker ended a new connection at its first request, does it want SASL: %w", err)
	}
	return err
}
