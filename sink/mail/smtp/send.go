package smtp

import (
	"context"
	"errors"
	"fmt"
	"io"

	gosmtp "github.com/wneessen/go-mail/smtp"

	"github.com/gooutbox/outbox/core"
	mailsink "github.com/gooutbox/outbox/sink/mail"
)

// phase is how far a mail has come.
type phase string

const (
	phaseMail phase = "MAIL"
	phaseRcpt phase = "RCPT"
	phaseData phase = "DATA"
	phaseDot  phase = "the final dot"
)

// Send sends one mail over one connection.
func (t *Transport) Send(ctx context.Context, e mailsink.Envelope) []core.Result {
	results := make([]core.Result, len(e.Recipients))
	all := func(r core.Result) []core.Result {
		for i := range results {
			results[i] = r
		}
		return results
	}
	ctx, done, ok := t.calls.Begin(ctx)
	if !ok {
		return all(core.Result{Outcome: core.NotAttempted, Err: ErrClosed})
	}
	defer done()
	if err := ctx.Err(); err != nil {
		return all(core.Result{Outcome: core.NotAttempted, Err: err})
	}
	s, reused, err := t.take(ctx)
	if err != nil {
		return all(notConnected(ctx, err))
	}
	release := s.within(ctx)
	refusal := s.begin(&e)
	if reused && refusal.stale() {
		release()
		if s, err = t.replace(ctx, s); err != nil {
			return all(notConnected(ctx, err))
		}
		release = s.within(ctx)
		refusal = s.begin(&e)
	}
	var clean bool
	if refusal == nil {
		clean = s.transmit(&e, results)
	} else {
		all(refusal.result(phaseMail, ""))
		clean = refusal.answered()
	}
	clean = clean && s.ready()
	if usable := release(); clean && usable {
		t.giveBack(s)
	} else {
		t.drop(s)
	}
	return results
}

// notConnected answers for a connection that didn't come about.
func notConnected(ctx context.Context, err error) core.Result {
	if errors.Is(err, errNoSlot) || ctx.Err() != nil {
		return core.Result{Outcome: core.NotAttempted, Err: err}
	}
	return core.Result{Outcome: core.Unavailable, Err: err}
}

// ready tells whether the session can take another mail; an aborted one is
// reset.
func (s *session) ready() bool {
	if s.client == nil || !s.client.HasConnection() {
		return false
	}
	return s.reset || s.client.Reset() == nil
}

// begin announces the mail.
func (s *session) begin(e *mailsink.Envelope) *failure {
	s.reset = false
	if s.limit > 0 && len(e.Message) > s.limit {
		return &failure{err: fmt.Errorf("the mail has %d bytes, and the SMTP server takes %d", len(e.Message), s.limit), forGood: true}
	}
	if utf8, _ := s.client.Extension("SMTPUTF8"); e.SMTPUTF8 && !utf8 {
		return &failure{err: errors.New("the mail has an address beyond ASCII, and the SMTP server can't take one"), forGood: true}
	}
	s.client.SkipSMTPUTF8(!e.SMTPUTF8)
	return failureOf(s.client.Mail("<" + e.Sender + ">"))
}

// transmit names the recipients and sends the mail. It fills in their results, and
// tells whether the session is in a known state.
func (s *session) transmit(e *mailsink.Envelope, results []core.Result) (clean bool) {
	var accepted []int
	for i, recipient := range e.Recipients {
		f := failureOf(s.client.Rcpt("<" + recipient + ">"))
		switch {
		case f == nil:
			accepted = append(accepted, i)
			continue
		case !f.ends():
			results[i] = f.result(phaseRcpt, recipient)
			continue
		}
		// The connection is of no use any more: nobody gets this mail.
		for _, j := range accepted {
			results[j] = f.result(phaseMail, "")
		}
		for j := i; j < len(results); j++ {
			results[j] = f.result(phaseMail, "")
		}
		return false
	}
	if len(accepted) == 0 {
		return true
	}
	at, receipt, f := s.data(e.Message)
	if f == nil {
		s.mails++
		s.reset = true
	}
	for _, i := range accepted {
		if f == nil {
			results[i] = core.Result{Outcome: core.Delivered, Receipt: receipt}
		} else {
			results[i] = f.result(at, "")
		}
	}
	return f == nil || f.answered()
}

// data sends the mail's bytes. It tells at which phase it failed.
func (s *session) data(message []byte) (at phase, receipt string, f *failure) {
	w, err := s.client.Data()
	if f := failureOf(err); f != nil {
		return phaseData, "", f
	}
	data, ok := w.(*gosmtp.DataCloser)
	if !ok {
		return phaseData, "", &failure{err: errors.New("the SMTP client has no writer of data"), lost: true}
	}
	// The client's own Close would hide whether the dot went out.
	if _, err := io.Writer(data.WriteCloser).Write(message); err != nil {
		return phaseData, "", &failure{err: err, lost: true}
	}
	if err := data.WriteCloser.Close(); err != nil {
		return phaseData, "", &failure{err: err, lost: true}
	}
	_, answer, err := s.client.Text.ReadResponse(2)
	if f := failureOf(err); f != nil {
		return phaseDot, "", f
	}
	return phaseDot, answer, nil
}
