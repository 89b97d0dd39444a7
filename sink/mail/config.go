package mail

import (
	"context"
	"errors"
	"net/mail"
	"time"

	"github.com/gooutbox/outbox/core"
)

// Config is what a Sink is made of.
type Config struct {
	// Transport sends. Required. The sink closes it.
	Transport Transport
	// Ledger remembers. Required. Sinks of one queue in several processes share
	// one.
	Ledger Ledger
	// Suppressions is asked before each send. Defaults to nil: none.
	Suppressions Suppressions
	// Templates are those that mails may name. Defaults to nil: raw mails only.
	Templates *Templates
	// From is the author of mails that name none. Defaults to none, and such
	// mails are rejected.
	From string
	// Sender is the envelope's sender, to which bounces go. Defaults to the mail's
	// From.
	Sender string
	// OnUnknown says what becomes of a mail that may have been sent. Defaults to
	// Hold.
	OnUnknown UnknownPolicy
	// Pauses tells of paused recipient domains; the queue does. Defaults to nil:
	// none is looked for.
	Pauses Pauses
	// SendTimeout bounds one Transport.Send; a call's own deadline may end it
	// earlier. Defaults to DefaultSendTimeout.
	SendTimeout time.Duration
	// MaxBytes bounds the encoded mail. Defaults to DefaultMaxBytes, 10 MiB.
	MaxBytes int
	// OnStep, if set, is told each step that this sink has written, for metrics.
	// It must return soon, and may be called by several goroutines at once. At is
	// not set.
	OnStep func(Step)
}

// UnknownPolicy says what becomes of a mail that may have been sent.
type UnknownPolicy string

// The policies.
const (
	// Hold: it is not sent again until a person decides. The sink declares
	// NoRepeat.
	Hold UnknownPolicy = "hold"
	// Resend: it is sent again, and may come twice.
	Resend UnknownPolicy = "resend"
)

// Pauses is what a sink needs of a queue to spare domains. core.Queue has it.
type Pauses interface {
	// Pauses lists the pauses that are in force.
	Pauses(ctx context.Context) ([]core.Pause, error)
}

const (
	// DefaultSendTimeout is longer than most servers take to answer, and ends
	// within the default lease of a job.
	DefaultSendTimeout = 40 * time.Second
	// finishTimeout is how long the ledger may take after a send, also when the
	// call's context has ended.
	finishTimeout = 2500 * time.Millisecond
	// reserveGrace is added to the time that a send may take: another worker that
	// asks within it is told that the mail is in flight.
	reserveGrace = 10 * time.Second
	// pausesFresh is how long what is known of pauses is used.
	pausesFresh = time.Second
)

// Validate reports every problem of the configuration at once, each beginning
// with the field's name.
func (c *Config) Validate() error {
	var errs []error
	problem := func(text string) { errs = append(errs, errors.New(text)) }
	if c.Transport == nil {
		problem("Transport is missing")
	}
	if c.Ledger == nil {
		problem("Ledger is missing")
	}
	if c.From != "" {
		if _, err := parseAddress(c.From); err != nil {
			problem("From " + err.Error())
		}
	}
	if c.Sender != "" {
		if _, err := parseAddress(c.Sender); err != nil {
			problem("Sender " + err.Error())
		}
	}
	switch c.OnUnknown {
	case "", Hold, Resend:
	default:
		problem("OnUnknown is none of hold, resend")
	}
	if c.SendTimeout < 0 {
		problem("SendTimeout is negative")
	}
	if c.MaxBytes < 0 {
		problem("MaxBytes is negative")
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	if c.OnUnknown == "" {
		c.OnUnknown = Hold
	}
	if c.SendTimeout == 0 {
		c.SendTimeout = DefaultSendTimeout
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = DefaultMaxBytes
	}
	return c
}

// addressOf parses an address that was validated; "" is nil.
func addressOf(s string) *mail.Address {
	if s == "" {
		return nil
	}
	a, err := parseAddress(s)
	if err != nil {
		return nil
	}
	return a
}
