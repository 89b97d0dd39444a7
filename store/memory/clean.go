package memory

import (
	"context"
	"errors"
	"fmt"

	"github.com/gooutbox/outbox/core"
)

// Clean removes events, see core.Log. The margin behind the cursors is zero,
// since positions here are exact.
func (s *Store) Clean(_ context.Context, req core.CleanRequest) (core.CleanResult, error) {
	if req.Retention <= 0 {
		return core.CleanResult{}, errors.New("cleaning the log: no retention given")
	}
	if err := s.fault(OpClean); err != nil {
		return core.CleanResult{}, fmt.Errorf("cleaning the log: %w", err)
	}
	return s.clean(req), s.lost(OpClean)
}

func (s *Store) clean(req core.CleanRequest) core.CleanResult {
	s.mu.Lock()
	defer s.mu.Unlock()
	slowest, bound := s.slowest(req.Cursors)
	oldest := s.cfg.Now().Add(-req.Retention)
	var result core.CleanResult
	var kept []*document
	for _, d := range s.log {
		old, settled := d.writtenAt.Before(oldest), d.pos.Compare(bound) <= 0
		if old && settled {
			delete(s.ids, d.event.ID)
			result.Removed++
			continue
		}
		if old {
			result.HeldBy = slowest
		}
		kept = append(kept, d)
	}
	s.log = kept
	return result
}

// slowest names the cursor that is furthest behind, and its position; a
// required one that doesn't exist is behind them all. The caller holds mu.
func (s *Store) slowest(required []string) (name string, pos core.Position) {
	for _, want := range required {
		if s.cursors[want] == nil {
			return want, core.Position{}
		}
	}
	pos = s.end()
	for _, c := range s.cursors {
		if c.after().Compare(pos) < 0 {
			name, pos = c.name, c.after()
		}
	}
	return name, pos
}

// Lag counts what the cursor has still to settle, see core.Log. It fails for a
// cursor that doesn't exist.
func (s *Store) Lag(_ context.Context, name string) (core.Lag, error) {
	if err := s.fault(OpLag); err != nil {
		return core.Lag{}, fmt.Errorf("measuring the lag of %q: %w", name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.cursors[name]
	if c == nil {
		return core.Lag{}, fmt.Errorf("measuring the lag of %q: no such cursor", name)
	}
	var lag core.Lag
	now := s.cfg.Now()
	for _, d := range s.log {
		if d.pos.Compare(c.after()) <= 0 || c.skips(d) {
			continue
		}
		lag.Events++
		lag.Age = max(lag.Age, now.Sub(d.writtenAt))
	}
	return lag, nil
}
