// Package ledgermodel is a mail.Ledger in memory for the tests of the sink and of
// its transports: each rule of the interface as directly as it can be written. It
// also fails on demand.
package ledgermodel

import (
	"context"
	"slices"
	"sync"
	"time"

	mailsink "github.com/gooutbox/outbox/sink/mail"
)

// Ledger holds records. Make it with New. Its methods may be called by several
// goroutines at once.
type Ledger struct {
	mu      sync.Mutex
	records map[string]*mailsink.Record
	// fail is asked before each write, by the method's name; after is asked after
	// it.
	fail, after func(method string) error
}

var _ mailsink.Ledger = (*Ledger)(nil)

// New returns an empty ledger.
func New() *Ledger {
	none := func(string) error { return nil }
	return &Ledger{records: map[string]*mailsink.Record{}, fail: none, after: none}
}

// Fail lets writes fail: before they are done, or after.
func (l *Ledger) Fail(before, after func(method string) error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fail, l.after = before, after
}

// write runs one write with the faults that are asked for.
func (l *Ledger) write(method string, do func() error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.fail(method); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	return l.after(method)
}

func add(r *mailsink.Record, step mailsink.Step) {
	if !slices.ContainsFunc(r.Steps, func(s mailsink.Step) bool { return s.ID == step.ID }) {
		step.JobID, step.At = r.JobID, time.Now()
		r.Steps = append(r.Steps, step)
	}
}

// Queue keeps to mail.Ledger.
func (l *Ledger) Queue(_ context.Context, mails ...mailsink.Queued) error {
	return l.write("Queue", func() error {
		for _, m := range mails {
			if l.records[m.JobID] != nil {
				continue
			}
			r := &mailsink.Record{
				JobID: m.JobID, State: mailsink.StateQueued, CorrelationID: m.CorrelationID, Tenant: m.Tenant, Sink: m.Sink,
				Template: m.Template, CreatedAt: time.Now(),
			}
			add(r, mailsink.Step{ID: mailsink.StepID(mailsink.StepQueued, ""), Kind: mailsink.StepQueued})
			l.records[m.JobID] = r
		}
		return nil
	})
}

// Reserve keeps to mail.Ledger.
func (l *Ledger) Reserve(_ context.Context, q mailsink.ReserveRequest) (answer mailsink.Reservation, err error) {
	err = l.write("Reserve", func() error {
		answer = l.reserve(q)
		return nil
	})
	return answer, err
}

func (l *Ledger) reserve(q mailsink.ReserveRequest) mailsink.Reservation {
	r := l.records[q.JobID]
	if r == nil {
		r = &mailsink.Record{JobID: q.JobID, State: mailsink.StateQueued, CreatedAt: time.Now()}
		l.records[q.JobID] = r
	}
	answer := func(v mailsink.Verdict) mailsink.Reservation {
		return mailsink.Reservation{Verdict: v, Record: clone(r), RetryIn: time.Until(r.ReservedUntil)}
	}
	took := false
	switch r.State {
	case mailsink.StateSent, mailsink.StateDiscarded:
		return answer(mailsink.VerdictDone)
	case mailsink.StateReserved:
		if r.Token == q.Token {
			return answer(mailsink.VerdictReserved)
		}
		if time.Now().Before(r.ReservedUntil) {
			return answer(mailsink.VerdictInFlight)
		}
		swap(r, mailsink.RecipientPending, mailsink.RecipientUnknown)
		r.State = mailsink.StateUnknown
		add(r, mailsink.Step{ID: mailsink.StepID(mailsink.StepUnknown, r.Token), Kind: mailsink.StepUnknown, Attempt: q.Attempt})
	case mailsink.StateRefused:
		swap(r, mailsink.RecipientRejected, mailsink.RecipientPending)
		swap(r, mailsink.RecipientSuppressed, mailsink.RecipientPending)
	}
	if r.State == mailsink.StateUnknown {
		if !q.TakeUnknown {
			return answer(mailsink.VerdictUnknown)
		}
		took = true
		swap(r, mailsink.RecipientUnknown, mailsink.RecipientPending)
	}
	for _, address := range q.Recipients {
		if !slices.ContainsFunc(r.Recipients, func(one mailsink.Recipient) bool { return one.Address == address }) {
			r.Recipients = append(r.Recipients, mailsink.Recipient{Address: address, State: mailsink.RecipientPending})
		}
	}
	if took || q.Redelivered {
		add(r, mailsink.Step{ID: mailsink.StepID(mailsink.StepRedelivered, q.Token), Kind: mailsink.StepRedelivered, Attempt: q.Attempt})
	}
	add(r, mailsink.Step{
		ID: mailsink.StepID(mailsink.StepAttempt, q.Token), Kind: mailsink.StepAttempt, Attempt: q.Attempt, Hash: q.Hash,
		HashChanged: r.Hash != "" && q.Hash != "" && r.Hash != q.Hash,
	})
	r.State, r.Token, r.ReservedUntil = mailsink.StateReserved, q.Token, time.Now().Add(q.For)
	for _, field := range []struct {
		to   *string
		from string
	}{{&r.Hash, q.Hash}, {&r.MessageID, q.MessageID}, {&r.CorrelationID, q.CorrelationID}, {&r.Tenant, q.Tenant}, {&r.Template, q.Template}} {
		if field.from != "" {
			*field.to = field.from
		}
	}
	return answer(mailsink.VerdictReserved)
}

func swap(r *mailsink.Record, from, to mailsink.RecipientState) {
	for i := range r.Recipients {
		if r.Recipients[i].State == from {
			r.Recipients[i].State = to
		}
	}
}

// Finish keeps to mail.Ledger.
func (l *Ledger) Finish(_ context.Context, f mailsink.Finish) error {
	return l.write("Finish", func() error {
		r := l.records[f.JobID]
		if r == nil {
			return mailsink.ErrReservationLost
		}
		repeated := slices.ContainsFunc(r.Steps, func(s mailsink.Step) bool { return s.ID == f.Step.ID })
		add(r, f.Step)
		switch {
		case r.Token == f.Token && (r.State == mailsink.StateReserved || r.State == mailsink.StateUnknown):
			r.State, r.Recipients = f.State, slices.Clone(f.Recipients)
			if f.ProviderID != "" {
				r.ProviderID = f.ProviderID
			}
			return nil
		case repeated:
			return nil
		}
		return mailsink.ErrReservationLost
	})
}

// Reserved keeps to mail.Ledger.
func (l *Ledger) Reserved(_ context.Context, ids []string) (map[string]bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := map[string]bool{}
	for _, id := range ids {
		if r := l.records[id]; r != nil {
			all[id] = r.State == mailsink.StateReserved || r.State == mailsink.StateUnknown
		}
	}
	return all, nil
}

// Resolve keeps to mail.Ledger, as far as the tests need: DecideSent and
// DecideResend of a mail of unknown outcome.
func (l *Ledger) Resolve(_ context.Context, d mailsink.Resolution) (mailsink.Record, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.records[d.JobID]
	if r == nil {
		return mailsink.Record{}, mailsink.ErrNoMail
	}
	if r.State != mailsink.StateUnknown {
		return clone(r), mailsink.ErrNotResolvable
	}
	if d.Decision == mailsink.DecideSent {
		swap(r, mailsink.RecipientUnknown, mailsink.RecipientAccepted)
		r.State = mailsink.StateSent
	} else {
		swap(r, mailsink.RecipientUnknown, mailsink.RecipientPending)
		r.State = mailsink.StateQueued
	}
	add(r, mailsink.Step{ID: mailsink.StepID(mailsink.StepResolved, r.Token), Kind: mailsink.StepResolved, By: d.By, Detail: d.Why})
	r.Token, r.ReservedUntil = "", time.Time{}
	return clone(r), nil
}

// Feedback keeps to mail.Ledger.
func (l *Ledger) Feedback(_ context.Context, f mailsink.Feedback) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.records {
		if r.ProviderID == f.ProviderID {
			add(r, mailsink.Step{ID: mailsink.StepID(f.Kind, f.ID), Kind: f.Kind, Detail: f.Detail})
			return true, nil
		}
	}
	return false, nil
}

// Mail keeps to mail.Ledger.
func (l *Ledger) Mail(_ context.Context, id string) (mailsink.Record, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.records[id]; r != nil {
		return clone(r), nil
	}
	return mailsink.Record{}, mailsink.ErrNoMail
}

func (l *Ledger) list(limit int, match func(*mailsink.Record) bool) []mailsink.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []mailsink.Record
	for _, r := range l.records {
		if match(r) {
			all = append(all, clone(r))
		}
	}
	slices.SortFunc(all, func(a, b mailsink.Record) int { return a.CreatedAt.Compare(b.CreatedAt) })
	return all[:min(limit, len(all))]
}

// StateOf keeps to mail.Ledger.
func (l *Ledger) StateOf(_ context.Context, correlation string) ([]mailsink.Record, error) {
	return l.list(mailsink.MaxOfCorrelation, func(r *mailsink.Record) bool { return r.CorrelationID == correlation }), nil
}

// EventsOf keeps to mail.Ledger.
func (l *Ledger) EventsOf(ctx context.Context, correlation string) ([]mailsink.Step, error) {
	records, err := l.StateOf(ctx, correlation)
	return mailsink.StepsOf(records), err
}

// Unknown keeps to mail.Ledger.
func (l *Ledger) Unknown(_ context.Context, limit int) ([]mailsink.Record, error) {
	return l.list(limit, func(r *mailsink.Record) bool {
		return r.State == mailsink.StateUnknown || r.State == mailsink.StateReserved && time.Now().After(r.ReservedUntil)
	}), nil
}

func clone(r *mailsink.Record) mailsink.Record {
	c := *r
	c.Recipients, c.Steps = slices.Clone(r.Recipients), slices.Clone(r.Steps)
	return c
}
