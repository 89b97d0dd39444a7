package memory

import (
	"context"
	"errors"
	"fmt"

	"github.com/gooutbox/outbox/core"
)

// transaction collects what becomes visible at once. Its fields are guarded by
// the store's mutex.
type transaction struct {
	store *Store
	open  bool
	// failed is why the transaction can't be committed any more.
	failed error
	docs   []*document
	jobs   []*job
	// counts are the new values of the counters that this transaction holds.
	counts map[string]int64
}

type transactionKey struct{}

// InTransaction runs fn and commits what it did with the context that it was
// given, if fn returns nil; otherwise nothing of it ever existed. The error is
// fn's, or why the transaction could not be committed: also an error of Append
// that fn didn't return. A context that carries a running transaction joins it:
// whoever started it commits.
//
// fn is run again when another transaction has meanwhile committed a job under
// a DedupKey that this one used.
func (s *Store) InTransaction(ctx context.Context, fn func(ctx context.Context) error) error {
	if _, err := s.running(ctx); err == nil {
		return fn(ctx)
	}
	for {
		if err := s.transact(ctx, fn); !errors.Is(err, errConflict) {
			return err
		}
	}
}

// errConflict makes InTransaction begin again.
var errConflict = errors.New("another transaction has used the same dedup key")

func (s *Store) transact(ctx context.Context, fn func(ctx context.Context) error) error {
	t := &transaction{store: s, open: true, counts: map[string]int64{}}
	defer s.finish(t)
	if err := fn(context.WithValue(ctx, transactionKey{}, t)); err != nil {
		return err
	}
	if err := s.fault(OpCommit); err != nil {
		return fmt.Errorf("committing the transaction: %w", err)
	}
	if err := s.commitTransaction(ctx, t); err != nil {
		return fmt.Errorf("committing the transaction: %w", err)
	}
	return s.lost(OpCommit)
}

// Append adds events to the log in the transaction that ctx carries: all of
// them or, with an error, none. An ID and OccurredAt are assigned where they
// are missing; times are cut to milliseconds. The caller keeps the events and
// may change them.
//
// The transaction goes on when the error is core.ErrNoTransaction or matches
// core.ErrInvalidEvent, which holds a *core.FieldError for each problem. After
// any other, such as a *core.DuplicateIDError, it can't be committed.
func (s *Store) Append(ctx context.Context, events ...core.Event) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("appending events: %w", err)
	}
	t, err := s.running(ctx)
	if err != nil {
		return fmt.Errorf("appending events: %w", err)
	}
	if err := s.validate(events); err != nil {
		return fmt.Errorf("appending events: %w", err)
	}
	err = s.fault(OpAppend)
	if err == nil {
		err = s.add(t, events)
	}
	if err == nil {
		err = s.lost(OpAppend)
	}
	if err != nil {
		s.fail(t, err)
		return fmt.Errorf("appending events: %w", err)
	}
	return nil
}

// validate reports all problems of all events.
func (s *Store) validate(events []core.Event) error {
	var errs []error
	ids := make(map[string]bool, len(events))
	for i, e := range events {
		err := e.Validate(s.cfg.MaxEventBytes)
		if ids[e.ID] {
			err = errors.Join(err, fmt.Errorf("%w: %w", core.ErrInvalidEvent,
				&core.FieldError{Field: "ID", Problem: "is that of another event of the same call"}))
		}
		ids[e.ID] = e.ID != ""
		if err != nil && len(events) > 1 {
			err = fmt.Errorf("event %d: %w", i, err)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// fail keeps the transaction from being committed.
func (s *Store) fail(t *transaction, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.failed == nil {
		t.failed = err
	}
}

// running returns the transaction that ctx carries while it runs.
func (s *Store) running(ctx context.Context) (*transaction, error) {
	t, ok := ctx.Value(transactionKey{}).(*transaction)
	if !ok || t.store != s {
		return nil, core.ErrNoTransaction
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !t.open {
		return nil, core.ErrNoTransaction
	}
	return t, nil
}

// add puts the events into the transaction.
func (s *Store) add(t *transaction, events []core.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !t.open {
		return core.ErrNoTransaction
	}
	if t.failed != nil {
		return t.failed
	}
	now := s.cfg.Now()
	docs := t.docs
	for _, e := range events {
		docs = append(docs, newDocument(e, now))
	}
	if err := s.checkIDs(docs); err != nil {
		return err
	}
	t.docs = docs
	return nil
}

// checkIDs finds an id that is in the log already, or twice among docs. The
// caller holds mu.
func (s *Store) checkIDs(docs []*document) error {
	seen := make(map[string]bool, len(docs))
	for _, d := range docs {
		id := d.event.ID
		if s.ids[id] != nil || seen[id] {
			return &core.DuplicateIDError{ID: id}
		}
		seen[id] = true
	}
	return nil
}

func (s *Store) commitTransaction(ctx context.Context, t *transaction) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if t.failed != nil {
		return t.failed
	}
	// Another transaction may have committed one of the ids meanwhile.
	if err := s.checkIDs(t.docs); err != nil {
		return err
	}
	if s.conflicts(t.jobs) {
		return errConflict
	}
	s.commit(t.docs)
	s.commitJobs(t.jobs)
	for key, n := range t.counts {
		s.counters[key].value = n
	}
	return nil
}

// finish closes the transaction and lets go of its counters.
func (s *Store) finish(t *transaction) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.open = false
	for key := range t.counts {
		<-s.counters[key].turn
	}
}

// counter is a number that one transaction at a time may change.
type counter struct {
	turn  chan struct{} // holds one token while a transaction holds the counter
	value int64
}

// Increment adds one to a counter in the transaction that ctx carries, as a
// business write to a common document does, and returns the new value. Another
// transaction that wants the same counter waits until this one has ended, or
// until its ctx does: two transactions that want each other's counters wait
// for ever. When the transaction doesn't commit, the counter keeps its old
// value.
func (s *Store) Increment(ctx context.Context, key string) (int64, error) {
	t, err := s.running(ctx)
	if err != nil {
		return 0, fmt.Errorf("counting: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.counters[key]
	if c == nil {
		c = &counter{turn: make(chan struct{}, 1)}
		s.counters[key] = c
	}
	if _, mine := t.counts[key]; !mine {
		s.mu.Unlock()
		select {
		case c.turn <- struct{}{}:
			err = nil
		case <-ctx.Done():
			err = ctx.Err()
		}
		s.mu.Lock()
		if err == nil && !t.open {
			<-c.turn
			err = core.ErrNoTransaction
		}
		if err != nil {
			return 0, fmt.Errorf("counting: %w", err)
		}
		t.counts[key] = c.value
	}
	t.counts[key]++
	return t.counts[key], nil
}
