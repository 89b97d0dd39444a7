package mongo

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
)

// writers commit transactions of two events each until they are stopped. Every
// second one keeps its transactions open until others, begun later, have
// committed.
type writers struct {
	mu      sync.Mutex
	changed *sync.Cond
	commits int
	stopped bool
	all     sync.WaitGroup
}

func startWriters(t *testing.T, s *Store, n int) *writers {
	t.Helper()
	w := &writers{}
	w.changed = sync.NewCond(&w.mu)
	for i := range n {
		w.all.Go(func() {
			for k := 0; !w.awaits(0); k++ {
				err := s.InTransaction(context.Background(), func(ctx context.Context) error {
					if err := s.Append(ctx, order(fmt.Sprintf("w%d-%d-a", i, k)), order(fmt.Sprintf("w%d-%d-b", i, k))); err != nil {
						return err
					}
					if i%2 == 0 {
						w.awaits(1 + (i+k)%20)
					}
					return nil
				})
				if err != nil {
					t.Errorf("writing: %v", err)
					return
				}
				w.committed()
			}
		})
	}
	t.Cleanup(w.stop)
	return w
}

// awaits returns after n further commits, and tells whether the writers are to
// stop, which ends the wait.
func (w *writers) awaits(n int) (stopped bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for until := w.commits + n; w.commits < until && !w.stopped; {
		w.changed.Wait()
	}
	return w.stopped
}

func (w *writers) committed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.commits++
	w.changed.Broadcast()
}

func (w *writers) stop() {
	w.mu.Lock()
	w.stopped = true
	w.changed.Broadcast()
	w.mu.Unlock()
	w.all.Wait()
}

// wantAll fails unless every event of the log is among got.
func wantAll(t *testing.T, s *Store, got []core.Entry) {
	t.Helper()
	have := map[string]bool{}
	for _, e := range got {
		have[e.Event.ID] = true
	}
	var missing []string
	for _, e := range readAll(t, s) {
		if !have[e.ID] {
			missing = append(missing, e.ID)
		}
	}
	if len(missing) > 0 {
		t.Errorf("%d events are missing: %v", len(missing), missing)
	}
}

// wantWritersOrder fails unless, repeats dropped, the events of each writer come
// in the order in which it committed them.
func wantWritersOrder(t *testing.T, got []core.Entry) {
	t.Helper()
	last := map[int]string{}
	for _, id := range firsts(idsIn(got)) {
		var w, k int
		var half rune
		if _, err := fmt.Sscanf(id, "w%d-%d-%c", &w, &k, &half); err != nil {
			continue // the last event is nobody's
		}
		place := fmt.Sprintf("%09d-%c", k, half)
		if place <= last[w] {
			t.Fatalf("%s comes after %s of the same writer", id, last[w])
		}
		last[w] = place
	}
}

func wantOnce(t *testing.T, got []core.Entry) {
	t.Helper()
	if have := idsIn(got); len(firsts(have)) != len(have) {
		t.Errorf("%d of %d events came twice", len(have)-len(firsts(have)), len(have))
	}
}

func TestNothingIsMissedBetweenScanAndStream(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), impatient)
	w := startWriters(t, s, 8)
	var cursors []*cursor
	got := make([][]core.Entry, 4)
	for round := range got {
		w.awaits(50)
		c := acquire(t, s, fmt.Sprint("route-", round), "test")
		cursors = append(cursors, c)
		for streaming := false; !streaming; { // to the end of the scan
			b, err := c.Read(t.Context(), core.ReadLimit{Events: 20})
			if err != nil {
				t.Fatal(err)
			}
			got[round] = append(got[round], b.Entries...)
			streaming = b.SaveSoon
		}
	}
	w.stop()
	appendIDs(t, s, "end")
	for round, c := range cursors {
		rest, _ := readOn(t, c, core.ReadLimit{}, func(got []core.Entry) bool { return holds(got, "end") })
		all := append(got[round], rest...)
		wantAll(t, s, all)
		wantOnce(t, all)
		wantRising(t, all)
		wantWritersOrder(t, all)
	}
}
