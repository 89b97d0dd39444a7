package memory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gooutbox/outbox/core"
)

// Pauses lists what is paused, by scope and name, see core.Queue.
func (s *Store) Pauses(ctx context.Context) ([]core.Pause, error) {
	if err := cmp.Or(ctx.Err(), s.fault(OpPauses)); err != nil {
		return nil, fmt.Errorf("listing pauses: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pauses(), nil
}

// pauses returns those that are in force. The caller holds mu.
func (s *Store) pauses() []core.Pause {
	var inForce []core.Pause
	for _, p := range s.queue.pauses {
		if s.inForce(p) {
			inForce = append(inForce, p)
		}
	}
	slices.SortFunc(inForce, func(a, b core.Pause) int {
		return cmp.Or(cmp.Compare(a.Scope, b.Scope), strings.Compare(a.Name, b.Name))
	})
	return inForce
}

// inForce tells whether the pause has not ended: one without Until doesn't. The
// caller holds mu.
func (s *Store) inForce(p core.Pause) bool {
	return p.Until.IsZero() || p.Until.After(s.cfg.Now())
}

// Pause puts a pause in force, see core.Queue.
func (s *Store) Pause(ctx context.Context, p core.Pause) error {
	if p.Scope == "" || p.Name == "" || p.For < 0 {
		return errors.New("pausing: name the scope and the target, and no time below zero")
	}
	if err := cmp.Or(ctx.Err(), s.fault(OpPause)); err != nil {
		return fmt.Errorf("pausing %s %q: %w", p.Scope, p.Name, err)
	}
	s.pause(p)
	return s.lost(OpPause)
}

func (s *Store) pause(p core.Pause) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.Until = time.Time{}
	if p.For > 0 {
		p.Until = s.cfg.Now().Add(p.For)
	}
	p.For = 0
	if old, there := s.queue.pauses[p.PauseTarget]; there && s.inForce(old) {
		switch {
		case p.By == "" && (old.By != "" || !longer(p, old)):
			return
		case !longer(p, old):
			p.Until = old.Until
		}
	}
	s.queue.pauses[p.PauseTarget] = p
	s.tell(core.Wake{})
}

// longer tells whether p ends after old.
func longer(p, old core.Pause) bool {
	if old.Until.IsZero() {
		return false
	}
	return p.Until.IsZero() || p.Until.After(old.Until)
}

// Resume ends a pause, see core.Queue.
func (s *Store) Resume(ctx context.Context, target core.PauseTarget) error {
	if err := cmp.Or(ctx.Err(), s.fault(OpResume)); err != nil {
		return fmt.Errorf("resuming %s %q: %w", target.Scope, target.Name, err)
	}
	s.resume(target)
	return s.lost(OpResume)
}

func (s *Store) resume(target core.PauseTarget) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, there := s.queue.pauses[target]; there {
		delete(s.queue.pauses, target)
		s.tell(core.Wake{})
	}
}
