package mail

import (
	"context"
	"errors"
	"fmt"
	"net/mail"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/calls"
)

// ErrClosed is the reason of what Deliver answers after Close.
var ErrClosed = errors.New("the mail sink is closed")

// Sink sends mails. Make it with New. Its methods may be called by several
// goroutines at once: one call sends one mail after the other, so that lanes are
// what makes it fast.
type Sink struct {
	cfg          Config
	from, sender *mail.Address
	pauses       paused
	unsure       unsure
	calls        *calls.Calls
}

var (
	_ core.Sink      = (*Sink)(nil)
	_ core.Describer = (*Sink)(nil)
	_ core.Checker   = (*Sink)(nil)
)

// New makes a sink. It connects to nothing: use Check for that. The error tells
// every problem of cfg.
func New(cfg Config) (*Sink, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configuring the mail sink: %w", err)
	}
	cfg = cfg.withDefaults()
	return &Sink{
		cfg: cfg, from: addressOf(cfg.From), sender: addressOf(cfg.Sender),
		pauses: paused{of: cfg.Pauses}, unsure: unsure{tokens: map[string]string{}}, calls: calls.New(),
	}, nil
}

// Capabilities says that a mail of unknown outcome is not sent again, unless the
// policy is Resend, and that a call takes one mail, so that no more mails than
// lanes are of unknown outcome after a crash.
func (s *Sink) Capabilities() core.Capabilities {
	return core.Capabilities{NoRepeat: s.cfg.OnUnknown == Hold, MaxBatch: 1}
}

// Check asks the transport, where it can tell, and the ledger whether they would
// work.
func (s *Sink) Check(ctx context.Context) error {
	var errs []error
	if c, ok := s.cfg.Transport.(core.Checker); ok {
		errs = append(errs, c.Check(ctx))
	}
	if _, err := s.cfg.Ledger.Unknown(ctx, 1); err != nil {
		errs = append(errs, fmt.Errorf("reading the ledger: %w", err))
	}
	return errors.Join(errs...)
}

// Deliver sends the mail of each lease, one after the other.
func (s *Sink) Deliver(ctx context.Context, leases []core.Lease) []core.Result {
	results := make([]core.Result, len(leases))
	ctx, done, ok := s.calls.Begin(ctx)
	if !ok {
		for i := range results {
			results[i] = core.Result{Outcome: core.NotAttempted, Err: ErrClosed}
		}
		return results
	}
	defer done()
	for i := range leases {
		if err := ctx.Err(); err != nil {
			results[i] = core.Result{Outcome: core.NotAttempted, Err: err}
			continue
		}
		results[i] = s.deliver(ctx, &leases[i])
	}
	return results
}

// Close waits for calls, whose contexts it ends, and closes the transport.
func (s *Sink) Close(ctx context.Context) error {
	var err error
	ended := s.calls.Close(ctx, func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTimeout)
		defer cancel()
		err = s.cfg.Transport.Close(closing)
	})
	if ended != nil {
		return ended
	}
	return err
}

// prepare makes the bytes of a mail. Its error is for good. What could be read is
// returned with it.
func (s *Sink) prepare(e *core.Event) (*Message, built, error) {
	switch e.ContentType {
	case ContentType, core.DefaultContentType, "":
	default:
		return &Message{}, built{}, fmt.Errorf("the job's content type is not %s", ContentType)
	}
	m, err := Decode(e.Payload)
	if err != nil {
		return &Message{}, built{}, err
	}
	c := content{subject: m.Subject, text: m.Text, html: m.HTML}
	if m.Template != "" {
		if s.cfg.Templates == nil {
			return &m, built{}, errors.New("the mail names a template, and the sink has none")
		}
		r, err := s.cfg.Templates.Render(m.Template, m.Locale, m.Data)
		if err != nil {
			return &m, built{}, err
		}
		c = content{subject: r.Subject, text: r.Text, html: r.HTML}
	} else if c.text == "" {
		if c.text, err = textOf(c.html); err != nil {
			return &m, built{}, err
		}
	}
	b, err := build(&m, c, origin{id: e.ID, at: e.OccurredAt, from: s.from, sender: s.sender, maxBytes: s.cfg.MaxBytes})
	return &m, b, err
}

// reservedFor is how long a send that begins now may take, and how long it is
// reserved.
func (s *Sink) reservedFor(ctx context.Context) (send, reserve time.Duration) {
	send = s.cfg.SendTimeout
	if deadline, ok := ctx.Deadline(); ok {
		send = min(send, time.Until(deadline))
	}
	return send, send + finishTimeout + reserveGrace
}
