// Package memory keeps in memory what a dedupe.Guard remembers: for tests, and
// as the model that other stores are compared with. It ends with the process.
package memory

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gooutbox/outbox/consumer/dedupe"
)

// Store is a dedupe.Store in memory. Its transactions run one after the other,
// so what fn does to the program's own memory is part of them as far as fn
// itself undoes it when it fails. Its zero value is not usable; call New.
type Store struct {
	transaction sync.Mutex // one at a time; taken before mu
	mu          sync.Mutex
	marks       map[dedupe.Key]mark
	versions    map[dedupe.Subject]kept
	fences      map[dedupe.Lane]kept // their Fence is 0
}

// mark is one key in any state. done and unknown have no lease.
type mark struct {
	state    dedupe.State // Reserved, Marked or Doubtful
	token    string
	leaseEnd time.Time
	expires  time.Time // zero: never
	since    time.Time
}

// kept is a highest number.
type kept struct {
	highest uint64
	expires time.Time // zero: never
}

// New makes an empty store.
func New() *Store {
	return &Store{marks: map[dedupe.Key]mark{}, versions: map[dedupe.Subject]kept{}, fences: map[dedupe.Lane]kept{}}
}

type inTransaction struct{}

// ErrNested: Transaction was called with the context of another one.
var ErrNested = errors.New("called in a transaction: the guard makes its own")

// Transaction runs fn while no other transaction runs. After an error or a
// panic nothing of tx has happened.
func (s *Store) Transaction(ctx context.Context, fn func(context.Context, dedupe.Tx) error) error {
	if ctx.Value(inTransaction{}) != nil {
		return ErrNested
	}
	s.transaction.Lock()
	defer s.transaction.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	t := &tx{s: s, marks: map[dedupe.Key]mark{}, versions: map[dedupe.Subject]kept{}, fences: map[dedupe.Lane]kept{}}
	if err := fn(context.WithValue(ctx, inTransaction{}, true), t); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.Copy(s.marks, t.marks)
	maps.Copy(s.versions, t.versions)
	maps.Copy(s.fences, t.fences)
	return nil
}

// tx gathers what is written at the commit.
type tx struct {
	s        *Store
	marks    map[dedupe.Key]mark
	versions map[dedupe.Subject]kept
	fences   map[dedupe.Lane]kept
}

func (t *tx) Mark(keys []dedupe.Key, retention time.Duration) ([]bool, error) {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	now := time.Now()
	fresh := make([]bool, len(keys))
	for i, key := range keys {
		if _, ok := t.marks[key]; ok {
			continue
		}
		if m, ok := t.s.marks[key]; ok && !over(m.expires, now) {
			continue
		}
		fresh[i] = true
		t.marks[key] = mark{state: dedupe.Marked, expires: end(now, retention)}
	}
	return fresh, nil
}

func (t *tx) Raise(subject dedupe.Subject, version int64, retention time.Duration) (int64, bool, error) {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	now := time.Now()
	before, known := find(t.versions, t.s.versions, subject, now)
	if !known || before < uint64(version) {
		t.versions[subject] = kept{highest: uint64(version), expires: end(now, retention)}
	}
	return int64(before), known, nil
}

func (t *tx) Fences(lanes []dedupe.Lane, retention time.Duration) ([]uint64, error) {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	now := time.Now()
	for _, lane := range lanes {
		fence := lane.Fence
		lane.Fence = 0
		if before, _ := find(t.fences, t.s.fences, lane, now); before < fence {
			t.fences[lane] = kept{highest: fence, expires: end(now, retention)}
		}
	}
	highest := make([]uint64, len(lanes))
	for i, lane := range lanes {
		lane.Fence = 0
		highest[i], _ = find(t.fences, t.s.fences, lane, now)
	}
	return highest, nil
}

func find[K comparable](first, then map[K]kept, key K, now time.Time) (uint64, bool) {
	for _, m := range []map[K]kept{first, then} {
		if k, ok := m[key]; ok && !over(k.expires, now) {
			return k.highest, true
		}
	}
	return 0, false
}

// end is when a retention that begins now is over; one of 0 never is.
func end(now time.Time, retention time.Duration) time.Time {
	if retention == 0 {
		return time.Time{}
	}
	return now.Add(retention)
}

func over(end, now time.Time) bool { return !end.IsZero() && !now.Before(end) }

// Reserve implements dedupe.Store.
func (s *Store) Reserve(_ context.Context, req dedupe.ReserveRequest) (dedupe.Reservation, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	m, ok := s.marks[req.Key]
	if !ok || over(m.expires, now) {
		m = mark{}
	}
	again := false
	switch {
	case m.state == dedupe.Marked:
		return dedupe.Reservation{State: dedupe.Marked}, nil
	case m.state == dedupe.Doubtful:
		return dedupe.Reservation{State: dedupe.Doubtful}, nil
	case m.state == dedupe.Reserved && m.token == req.Token:
		return dedupe.Reservation{State: dedupe.Reserved}, nil
	case m.state == dedupe.Reserved && now.Before(m.leaseEnd):
		return dedupe.Reservation{State: dedupe.Busy, After: m.leaseEnd.Sub(now)}, nil
	case m.state == dedupe.Reserved && req.Report:
		m.state, m.since, m.expires = dedupe.Doubtful, now, time.Time{}
		s.marks[req.Key] = m
		return dedupe.Reservation{State: dedupe.Doubtful}, nil
	case m.state == dedupe.Reserved:
		again = true
	}
	s.marks[req.Key] = mark{state: dedupe.Reserved, token: req.Token, leaseEnd: now.Add(req.Lease), expires: now.Add(req.Lease + req.Retention)}
	return dedupe.Reservation{State: dedupe.Reserved, Again: again}, nil
}

// held returns the mark of a key that token has, in one of the states.
func (s *Store) held(key dedupe.Key, token string, states ...dedupe.State) (mark, bool) {
	m, ok := s.marks[key]
	return m, ok && m.token == token && slices.Contains(states, m.state)
}

// Renew implements dedupe.Store.
func (s *Store) Renew(_ context.Context, key dedupe.Key, token string, lease time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, ok := s.held(key, token, dedupe.Reserved)
	if !ok {
		return dedupe.ErrLost
	}
	m.leaseEnd = time.Now().Add(lease)
	s.marks[key] = m
	return nil
}

// Finish implements dedupe.Store.
func (s *Store) Finish(_ context.Context, key dedupe.Key, token string, retention time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, ok := s.held(key, token, dedupe.Reserved, dedupe.Marked, dedupe.Doubtful)
	if !ok {
		return dedupe.ErrLost
	}
	if m.state != dedupe.Marked {
		s.marks[key] = mark{state: dedupe.Marked, token: token, expires: time.Now().Add(retention)}
	}
	return nil
}

// Release implements dedupe.Store.
func (s *Store) Release(_ context.Context, key dedupe.Key, token string, again bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, ok := s.held(key, token, dedupe.Reserved)
	switch {
	case ok && again:
		m.leaseEnd, m.token = time.Time{}, ""
		s.marks[key] = m
	case ok:
		delete(s.marks, key)
	}
	return nil
}

// Doubt implements dedupe.Store.
func (s *Store) Doubt(_ context.Context, key dedupe.Key, token string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, ok := s.held(key, token, dedupe.Reserved, dedupe.Doubtful)
	if !ok {
		return dedupe.ErrLost
	}
	if m.state == dedupe.Reserved {
		s.marks[key] = mark{state: dedupe.Doubtful, token: token, since: time.Now()}
	}
	return nil
}

// Unknowns implements dedupe.Store.
func (s *Store) Unknowns(_ context.Context, consumer string, limit int) ([]dedupe.Unknown, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []dedupe.Unknown
	for key, m := range s.marks {
		if key.Consumer == consumer && m.state == dedupe.Doubtful {
			found = append(found, dedupe.Unknown{EventID: key.EventID, Since: m.since})
		}
	}
	slices.SortFunc(found, func(a, b dedupe.Unknown) int { return strings.Compare(a.EventID, b.EventID) })
	return found[:min(len(found), max(limit, 0))], nil
}

// Resolve implements dedupe.Store.
func (s *Store) Resolve(_ context.Context, key dedupe.Key, done bool, retention time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m, ok := s.marks[key]; !ok || m.state != dedupe.Doubtful {
		return dedupe.ErrNotUnknown
	}
	if done {
		s.marks[key] = mark{state: dedupe.Marked, expires: time.Now().Add(retention)}
	} else {
		delete(s.marks, key)
	}
	return nil
}
