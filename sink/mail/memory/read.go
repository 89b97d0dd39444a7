package memory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gooutbox/outbox/sink/mail"
)

// Reserved keeps to core.Reservations.
func (l *Ledger) Reserved(_ context.Context, jobIDs []string) (map[string]bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	found := map[string]bool{}
	for _, id := range jobIDs {
		if r := l.get(id); r != nil && (r.State == mail.StateReserved || r.State == mail.StateUnknown) {
			found[id] = true
		}
	}
	return found, nil
}

// Mail keeps to mail.Ledger.
func (l *Ledger) Mail(_ context.Context, jobID string) (mail.Record, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.get(jobID); r != nil {
		return r.clone(), nil
	}
	return mail.Record{}, fmt.Errorf("reading a mail: %w", mail.ErrNoMail)
}

// StateOf keeps to mail.Ledger.
func (l *Ledger) StateOf(_ context.Context, correlationID string) ([]mail.Record, error) {
	if correlationID == "" {
		return nil, nil
	}
	return l.list(mail.MaxOfCorrelation, func(r *record) bool { return r.CorrelationID == correlationID }), nil
}

// EventsOf keeps to mail.Ledger.
func (l *Ledger) EventsOf(ctx context.Context, correlationID string) ([]mail.Step, error) {
	found, err := l.StateOf(ctx, correlationID)
	return mail.StepsOf(found), err
}

// Unknown keeps to mail.Ledger.
func (l *Ledger) Unknown(_ context.Context, limit int) ([]mail.Record, error) {
	return l.list(limit, func(r *record) bool { return r.State == mail.StateUnknown || r.lapsed() }), nil
}

// Feedback keeps to mail.Ledger.
func (l *Ledger) Feedback(_ context.Context, f mail.Feedback) (bool, error) {
	if f.ID == "" || f.ProviderID == "" {
		return false, errors.New("adding a provider's notification: ID and ProviderID are required")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for id := range l.records {
		if r := l.get(id); r != nil && r.ProviderID == f.ProviderID {
			r.add(mail.Step{ID: mail.StepID(f.Kind, f.ID), Kind: f.Kind, Detail: f.Detail})
			return true, nil
		}
	}
	return false, nil
}

// Resolve keeps to mail.Ledger.
func (l *Ledger) Resolve(_ context.Context, d mail.Resolution) (mail.Record, error) {
	if d.JobID == "" || d.By == "" {
		return mail.Record{}, errors.New("resolving a mail: JobID and By are required")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.get(d.JobID)
	if r == nil {
		return mail.Record{}, fmt.Errorf("resolving a mail: %w", mail.ErrNoMail)
	}
	unsure := r.State == mail.StateUnknown || r.lapsed()
	allowed := unsure
	switch d.Decision {
	case mail.DecideSent, mail.DecideResend:
	case mail.DecideDiscard:
		allowed = unsure || r.State == mail.StateQueued || r.State == mail.StateRefused
	default:
		return mail.Record{}, fmt.Errorf("resolving a mail: the decision %.20q is none of sent, resend, discard", string(d.Decision))
	}
	if !allowed {
		if n := len(r.Steps); n > 0 && r.decisions[r.Steps[n-1].ID] == d.Decision {
			return r.clone(), nil
		}
		return r.clone(), fmt.Errorf("resolving a mail: %w", mail.ErrNotResolvable)
	}
	kind, state := mail.StepResolved, mail.StateQueued
	if r.State == mail.StateReserved && d.Decision != mail.DecideDiscard {
		r.move(mail.RecipientUnknown, mail.RecipientPending)
	}
	switch d.Decision {
	case mail.DecideSent:
		r.move(mail.RecipientAccepted, mail.RecipientUnknown)
		switch {
		case r.any(mail.RecipientPending):
		case r.any(mail.RecipientRejected, mail.RecipientSuppressed):
			state = mail.StateRefused
		default:
			state = mail.StateSent
		}
	case mail.DecideResend:
		r.move(mail.RecipientPending, mail.RecipientUnknown)
	case mail.DecideDiscard:
		kind, state = mail.StepDiscarded, mail.StateDiscarded
	}
	id := mail.StepID(kind, r.Token)
	r.add(mail.Step{ID: id, Kind: kind, By: d.By, Detail: d.Why})
	r.decisions[id] = d.Decision
	r.Token, r.ReservedUntil = "", time.Time{}
	r.become(state, l.retention)
	return r.clone(), nil
}
