package mail

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/crash"
)

// deliver brings one mail through: suppressions, reservation, send, finish.
func (s *Sink) deliver(ctx context.Context, l *core.Lease) core.Result {
	e := &l.Event
	if e.ID == "" {
		return rejected(errors.New("the job has no id"))
	}
	m, b, fault := s.prepare(e)
	var not exceptions
	if fault == nil {
		var err error
		if not, err = s.exceptions(ctx, b.recipients); err != nil {
			return waits(ctx, err)
		}
		if wait, all := not.pausedAll(b.recipients); all {
			return wait
		}
	}
	send, reserve := s.reservedFor(ctx)
	req := ReserveRequest{
		JobID: e.ID, Token: s.unsure.token(e.ID), For: reserve, Attempt: l.Attempt, Redelivered: l.Redelivered,
		Recipients: b.recipients, Hash: b.hash, MessageID: b.messageID, CorrelationID: e.CorrelationID, Tenant: e.Tenant,
		Template: m.Template, TakeUnknown: s.cfg.OnUnknown == Resend,
	}
	r, err := s.reserve(ctx, req)
	if err != nil {
		s.unsure.keep(e.ID, req.Token) // it may be written, and nothing was sent
		return waits(ctx, fmt.Errorf("reserving the mail: %w", err))
	}
	switch r.Verdict {
	case VerdictReserved:
	case VerdictDone:
		return done(&r.Record)
	case VerdictInFlight:
		return core.Result{Outcome: core.Refused, Err: errors.New("another worker is sending the mail"), RetryAfter: max(r.RetryIn, time.Second)}
	case VerdictUnknown:
		s.told(Step{ID: StepID(StepUnknown, r.Record.Token), Kind: StepUnknown, JobID: e.ID, Attempt: l.Attempt})
		return core.Result{Outcome: core.Unknown, Err: errMaySent}
	default:
		return core.Result{Outcome: core.Unavailable, Err: fmt.Errorf("the ledger answered the verdict %d", r.Verdict)}
	}
	s.told(Step{ID: StepID(StepAttempt, req.Token), Kind: StepAttempt, JobID: e.ID, Attempt: l.Attempt, Hash: b.hash})
	crash.Here("mail.reserved")

	if fault != nil {
		return s.finish(ctx, l, req.Token, r.Record.Recipients, attempt{fault: fault})
	}
	a := s.send(ctx, send, Envelope{
		JobID: e.ID, Tenant: e.Tenant, Sender: b.sender, Message: b.message, Tags: m.Tags, SMTPUTF8: b.smtpUTF8,
	}, r.Record.Recipients, not)
	crash.Here("mail.sent")
	return s.finish(ctx, l, req.Token, r.Record.Recipients, a)
}

// errMaySent is why a mail isn't sent again.
var errMaySent = errors.New("an earlier attempt may have sent the mail: decide by `outbox mail resolve ID --sent` or `--resend`")

// reserveTries is how often a reservation is asked for under one token.
const reserveTries = 3

// reserve asks again after an error: to ask under the same token is safe, and a
// reservation that was written and is not known would make the outcome unknown.
func (s *Sink) reserve(ctx context.Context, req ReserveRequest) (r Reservation, err error) {
	for try := range reserveTries {
		if r, err = s.cfg.Ledger.Reserve(ctx, req); err == nil || ctx.Err() != nil {
			return r, err
		}
		sleep(ctx, time.Duration(1+try)*50*time.Millisecond)
	}
	return r, err
}

// send calls the transport for the pending recipients that nothing excepts, and
// returns a result for each pending one.
func (s *Sink) send(ctx context.Context, limit time.Duration, e Envelope, all []Recipient, not exceptions) attempt {
	a := attempt{results: map[string]core.Result{}}
	for _, r := range all {
		switch {
		case r.State != RecipientPending:
		case not.suppressed[r.Address] != nil:
			a.suppressed = append(a.suppressed, r.Address)
		case not.paused[domainOf(r.Address)] != nil:
			a.results[r.Address] = *not.paused[domainOf(r.Address)]
		default:
			e.Recipients = append(e.Recipients, r.Address)
		}
	}
	a.why = not.suppressed
	if len(e.Recipients) == 0 {
		return a
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	results := s.call(ctx, e)
	for i, address := range e.Recipients {
		a.results[address] = results[i]
	}
	return a
}

// call calls the transport. One that breaks its contract leaves the outcome
// unknown.
func (s *Sink) call(ctx context.Context, e Envelope) (results []core.Result) {
	unknown := func(err error) []core.Result {
		results := make([]core.Result, len(e.Recipients))
		for i := range results {
			results[i] = core.Result{Outcome: core.Unknown, Err: err}
		}
		return results
	}
	defer func() {
		if p := recover(); p != nil {
			results = unknown(fmt.Errorf("the transport panicked: %v", p))
		}
	}()
	results = s.cfg.Transport.Send(ctx, e)
	if len(results) != len(e.Recipients) {
		return unknown(fmt.Errorf("the transport answered %d results for %d recipients", len(results), len(e.Recipients)))
	}
	return results
}

// finish writes what became of an attempt, and answers it. What was sent is the
// truth whether the ledger takes it or not: a job that isn't settled either is
// then of unknown outcome.
func (s *Sink) finish(ctx context.Context, l *core.Lease, token string, all []Recipient, a attempt) core.Result {
	f, result := a.judge(all)
	f.JobID, f.Token = l.Event.ID, token
	f.Step.ID, f.Step.Attempt, f.Step.JobID = StepID(f.Step.Kind, token), l.Attempt, l.Event.ID
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTimeout)
	defer cancel()
	for {
		err := s.cfg.Ledger.Finish(ctx, f)
		if err == nil || errors.Is(err, ErrReservationLost) {
			s.told(f.Step)
			return result
		}
		if !sleep(ctx, 100*time.Millisecond) {
			return result
		}
	}
}

func (s *Sink) told(step Step) {
	if s.cfg.OnStep != nil {
		s.cfg.OnStep(step)
	}
}

// done answers a mail that needs no sending any more.
func done(r *Record) core.Result {
	if r.State == StateDiscarded {
		return rejected(errors.New("the mail was discarded"))
	}
	return core.Result{Outcome: core.Delivered, Receipt: r.ProviderID}
}

func rejected(err error) core.Result { return core.Result{Outcome: core.Rejected, Err: err} }

// waits answers for a ledger or a list that doesn't: nothing was sent.
func waits(ctx context.Context, err error) core.Result {
	if ctx.Err() != nil {
		return core.Result{Outcome: core.NotAttempted, Err: err}
	}
	return core.Result{Outcome: core.Unavailable, Err: err}
}

// sleep waits, and returns false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// newToken names an attempt.
func newToken() string { return uuid.NewString() }
