package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/trial"
)

// sink writes a line for each delivery that begins and for each that ends. The
// file is opened for appending: lines of several processes never mix.
type sink struct {
	cfg     trial.Actor
	journal *os.File

	mu     sync.Mutex
	random *rand.Rand
}

// throttledFor is how long a throttled call asks to wait.
const throttledFor = 300 * time.Millisecond

func openSink(a trial.Actor) (*sink, error) {
	journal, err := os.OpenFile(a.Journal, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the journal: %w", err)
	}
	name := fnv.New64a()
	_, _ = name.Write([]byte(a.Owner)) // never fails
	return &sink{cfg: a, journal: journal, random: rand.New(rand.NewPCG(a.Seed, name.Sum64()))}, nil
}

// Capabilities implements core.Describer.
func (s *sink) Capabilities() core.Capabilities {
	return core.Capabilities{PrefixPerKey: s.cfg.PrefixPerKey}
}

// Close implements core.Sink.
func (s *sink) Close(context.Context) error {
	if err := s.journal.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("closing the journal: %w", err)
	}
	return nil
}

// Deliver implements core.Sink.
func (s *sink) Deliver(ctx context.Context, leases []core.Lease) []core.Result {
	results := make([]core.Result, len(leases))
	stopped := map[string]bool{} // keys of which one was not delivered
	for i := range leases {
		key := leases[i].Event.AggregateID
		if key == "" || !stopped[key] {
			results[i] = s.deliver(ctx, &leases[i])
		}
		stopped[key] = stopped[key] || results[i].Outcome != core.Delivered
	}
	return results
}

func (s *sink) deliver(ctx context.Context, l *core.Lease) core.Result {
	if ctx.Err() != nil {
		return core.Result{Outcome: core.NotAttempted, Err: ctx.Err()}
	}
	e := &l.Event
	note := trial.Note{
		At: time.Now(), Owner: s.cfg.Owner, ID: e.ID, Key: e.AggregateID, Version: e.AggregateVersion, Occurred: e.OccurredAt,
		Attempt: l.Attempt, Redelivered: l.Redelivered, Redriven: l.Redriven, Fence: l.Fence,
	}
	s.write(note)
	note.End = true
	if !s.take(ctx) {
		note.At, note.Outcome = time.Now(), core.NotAttempted.String()
		s.write(note)
		return core.Result{Outcome: core.NotAttempted, Err: ctx.Err()}
	}
	outcome, arrived := s.decide(e.AggregateID)
	note.At, note.Outcome, note.Arrived = time.Now(), outcome.String(), arrived
	s.write(note)
	if outcome == core.Delivered {
		return core.Result{Outcome: outcome, Receipt: "r"}
	}
	return core.Result{Outcome: outcome, Err: fmt.Errorf("the sink is told to answer %q", outcome), RetryAfter: throttledFor}
}

// take lets a delivery take its time, and tells whether ctx still runs.
func (s *sink) take(ctx context.Context) bool {
	if s.cfg.Takes <= 0 {
		return true
	}
	s.mu.Lock()
	d := time.Duration(s.random.Int64N(int64(s.cfg.Takes)))
	s.mu.Unlock()
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// outcomes are those that a test can ask for.
var outcomes = []core.Outcome{core.Refused, core.Rejected, core.Unavailable, core.Throttled, core.Unknown}

// killed is what a test asks for to have the process end in the delivery.
const killed = "killed"

// decide says how a delivery ends, and whether the destination has the event.
func (s *sink) decide(key string) (core.Outcome, bool) {
	if s.cfg.Moods != "" {
		if mood, err := os.ReadFile(filepath.Join(s.cfg.Moods, "key-"+key)); err == nil {
			return outcomeOf(strings.TrimSpace(string(mood))), false
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.random.Float64()
	if n -= s.cfg.Shares[killed]; n < 0 {
		return outcomeOf(killed), false
	}
	for _, o := range outcomes {
		if n -= s.cfg.Shares[o.String()]; n < 0 {
			return o, o == core.Unknown && s.random.IntN(2) == 0
		}
	}
	return core.Delivered, true
}

func outcomeOf(name string) core.Outcome {
	if name == killed {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
	if i := slices.IndexFunc(outcomes, func(o core.Outcome) bool { return o.String() == name }); i >= 0 {
		return outcomes[i]
	}
	panic("no outcome is named " + name)
}

func (s *sink) write(n trial.Note) {
	line, err := json.Marshal(n)
	if err == nil {
		_, err = s.journal.Write(append(line, '\n'))
	}
	if err != nil {
		panic(err) // a test can't go on without
	}
}
