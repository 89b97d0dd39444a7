package memory

import (
	"cmp"
	"context"
	"fmt"

	"github.com/gooutbox/outbox/core"
)

// watcher is one Watch that runs.
type watcher struct {
	wakes []core.Wake   // not told yet, guarded by the store's mutex
	more  chan struct{} // has a token when there are some
}

// Watch tells of changes until ctx ends, see core.Queue.
func (s *Store) Watch(ctx context.Context, wake func(core.Wake)) error {
	w := &watcher{wakes: []core.Wake{{}}, more: make(chan struct{}, 1)}
	s.mu.Lock()
	s.queue.watchers[w] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.queue.watchers, w)
	}()
	for {
		if err := cmp.Or(ctx.Err(), s.fault(OpWatch)); err != nil {
			return fmt.Errorf("watching the queue: %w", err)
		}
		for _, one := range s.take(w) {
			wake(one)
		}
		select {
		case <-w.more:
		case <-ctx.Done():
		}
	}
}

// take returns what the watcher wasn't told yet.
func (s *Store) take(w *watcher) []core.Wake {
	s.mu.Lock()
	defer s.mu.Unlock()
	wakes := w.wakes
	w.wakes = nil
	return wakes
}

// tell wakes all watchers. The caller holds mu.
func (s *Store) tell(wake core.Wake) {
	for w := range s.queue.watchers {
		w.wakes = append(w.wakes, wake)
		select {
		case w.more <- struct{}{}:
		default:
		}
	}
}
