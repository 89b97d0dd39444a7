// Package memory keeps a mail ledger and a suppression list in the memory of one
// process, for tests and for programs that may forget what was sent when they
// end: after a restart a mail of unknown outcome would be sent again.
package memory

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gooutbox/outbox/sink/mail"
)

// Ledger is a mail.Ledger. Make it with NewLedger. Its clock is the process's.
// Queue acts at once: there are no transactions.
type Ledger struct {
	mu        sync.Mutex
	retention time.Duration
	records   map[string]*record
}

var _ mail.Ledger = (*Ledger)(nil)

// record is a mail with what only resolving and finishing again need.
type record struct {
	mail.Record
	lost      map[string]bool
	decisions map[string]mail.Decision // by step
	nth       int
}

// NewLedger makes an empty ledger with mail.DefaultRetention.
func NewLedger() *Ledger {
	return &Ledger{retention: mail.DefaultRetention, records: map[string]*record{}}
}

// get returns a record unless its time is over; nil if there is none.
func (l *Ledger) get(id string) *record {
	r := l.records[id]
	if r != nil && !r.ExpireAt.IsZero() && !time.Now().Before(r.ExpireAt) {
		delete(l.records, id)
		return nil
	}
	return r
}

func (l *Ledger) make(id string) *record {
	r := &record{lost: map[string]bool{}, decisions: map[string]mail.Decision{}, nth: len(l.records)}
	r.JobID, r.State, r.CreatedAt = id, mail.StateQueued, time.Now()
	l.records[id] = r
	return r
}

func (r *record) has(step string) bool {
	return slices.ContainsFunc(r.Steps, func(s mail.Step) bool { return s.ID == step })
}

func (r *record) add(s mail.Step) {
	if r.has(s.ID) {
		return
	}
	s.JobID, s.At, s.Detail = r.JobID, time.Now(), cut(s.Detail)
	r.Steps = append(r.Steps, s)
}

func (r *record) move(to mail.RecipientState, from ...mail.RecipientState) {
	for i := range r.Recipients {
		if slices.Contains(from, r.Recipients[i].State) {
			r.Recipients[i].State = to
		}
	}
}

func (r *record) any(states ...mail.RecipientState) bool {
	return slices.ContainsFunc(r.Recipients, func(one mail.Recipient) bool { return slices.Contains(states, one.State) })
}

func (r *record) lapsed() bool {
	return r.State == mail.StateReserved && !time.Now().Before(r.ReservedUntil)
}

func (r *record) become(state mail.State, retention time.Duration) {
	r.State, r.ExpireAt = state, time.Time{}
	switch state {
	case mail.StateSent, mail.StateRefused, mail.StateDiscarded:
		r.ExpireAt = time.Now().Add(retention)
	}
}

func (r *record) clone() mail.Record {
	c := r.Record
	c.Recipients, c.Steps = slices.Clone(r.Recipients), slices.Clone(r.Steps)
	return c
}

// cut bounds a detail without splitting a character.
func cut(s string) string {
	if len(s) > mail.MaxDetailBytes {
		s = s[:mail.MaxDetailBytes]
	}
	return strings.ToValidUTF8(s, "")
}

// Queue keeps to mail.Ledger, without a transaction.
func (l *Ledger) Queue(_ context.Context, mails ...mail.Queued) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range mails {
		if m.JobID == "" {
			return errors.New("noting mails as queued: JobID is required")
		}
		if l.get(m.JobID) != nil {
			continue
		}
		r := l.make(m.JobID)
		r.CorrelationID, r.Tenant, r.Sink, r.Template = m.CorrelationID, m.Tenant, m.Sink, m.Template
		r.add(mail.Step{ID: mail.StepID(mail.StepQueued, ""), Kind: mail.StepQueued})
	}
	return nil
}

// Reserve keeps to mail.Ledger.
func (l *Ledger) Reserve(_ context.Context, q mail.ReserveRequest) (mail.Reservation, error) {
	if q.JobID == "" || q.Token == "" || q.For <= 0 {
		return mail.Reservation{}, errors.New("reserving a mail: JobID, Token and For are required")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.get(q.JobID)
	if r == nil {
		r = l.make(q.JobID)
	}
	verdict := r.reserve(q)
	found := mail.Reservation{Verdict: verdict, Record: r.clone()}
	if verdict == mail.VerdictInFlight {
		found.RetryIn = max(0, time.Until(r.ReservedUntil))
	}
	return found, nil
}

func (r *record) reserve(q mail.ReserveRequest) mail.Verdict {
	switch {
	case r.State == mail.StateSent, r.State == mail.StateDiscarded:
		return mail.VerdictDone
	case r.State == mail.StateReserved && r.Token == q.Token:
		return mail.VerdictReserved
	case r.State == mail.StateReserved && !r.lapsed():
		return mail.VerdictInFlight
	case r.State == mail.StateReserved:
		r.move(mail.RecipientUnknown, mail.RecipientPending)
		r.add(mail.Step{ID: mail.StepID(mail.StepUnknown, r.Token), Kind: mail.StepUnknown, Attempt: q.Attempt})
		r.State = mail.StateUnknown
	}
	redelivered := q.Redelivered
	switch {
	case r.State == mail.StateUnknown && !q.TakeUnknown:
		return mail.VerdictUnknown
	case r.State == mail.StateUnknown:
		redelivered = true
		r.move(mail.RecipientPending, mail.RecipientUnknown)
	case r.State == mail.StateRefused:
		r.move(mail.RecipientPending, mail.RecipientRejected, mail.RecipientSuppressed)
	}
	for _, address := range q.Recipients {
		if !slices.ContainsFunc(r.Recipients, func(one mail.Recipient) bool { return one.Address == address }) {
			r.Recipients = append(r.Recipients, mail.Recipient{Address: address, State: mail.RecipientPending})
		}
	}
	if redelivered {
		r.add(mail.Step{ID: mail.StepID(mail.StepRedelivered, q.Token), Kind: mail.StepRedelivered, Attempt: q.Attempt})
	}
	r.add(mail.Step{
		ID: mail.StepID(mail.StepAttempt, q.Token), Kind: mail.StepAttempt, Attempt: q.Attempt, Hash: q.Hash,
		HashChanged: r.Hash != "" && q.Hash != "" && r.Hash != q.Hash,
	})
	for _, field := range []struct {
		to   *string
		from string
	}{
		{&r.Hash, q.Hash},
		{&r.MessageID, q.MessageID},
		{&r.CorrelationID, q.CorrelationID},
		{&r.Tenant, q.Tenant},
		{&r.Sink, q.Sink},
		{&r.Template, q.Template},
	} {
		if field.from != "" {
			*field.to = field.from
		}
	}
	r.State, r.Token, r.ReservedUntil, r.ExpireAt = mail.StateReserved, q.Token, time.Now().Add(q.For), time.Time{}
	return mail.VerdictReserved
}

// Finish keeps to mail.Ledger.
func (l *Ledger) Finish(_ context.Context, f mail.Finish) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.get(f.JobID)
	switch {
	case r == nil:
		return mail.ErrReservationLost
	case r.lost[f.Step.ID]:
		return mail.ErrReservationLost
	case r.has(f.Step.ID):
		return nil
	}
	r.add(f.Step)
	if r.Token != f.Token || r.State != mail.StateReserved && r.State != mail.StateUnknown {
		r.lost[f.Step.ID] = true
		return mail.ErrReservationLost
	}
	r.Recipients = slices.Clone(f.Recipients)
	for i := range r.Recipients {
		r.Recipients[i].Detail = cut(r.Recipients[i].Detail)
	}
	if f.ProviderID != "" {
		r.ProviderID = f.ProviderID
	}
	r.become(f.State, l.retention)
	return nil
}

// list returns the records that match, oldest first.
func (l *Ledger) list(limit int, match func(*record) bool) []mail.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []*record
	for _, id := range slices.Collect(maps.Keys(l.records)) {
		if r := l.get(id); r != nil && match(r) {
			found = append(found, r)
		}
	}
	slices.SortFunc(found, func(a, b *record) int {
		if c := a.CreatedAt.Compare(b.CreatedAt); c != 0 {
			return c
		}
		return a.nth - b.nth
	})
	var all []mail.Record
	for _, r := range found[:min(max(limit, 0), len(found))] {
		all = append(all, r.clone())
	}
	return all
}
