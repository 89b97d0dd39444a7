package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/store/memory"
)

func modelRules() []rule {
	return []rule{
		{name: "RandomOperationsMatchIt", needs: []need{transactions}, check: checkModel},
	}
}

// twin is one cursor in the store and in the model.
type twin struct {
	name        string
	real, model core.Cursor
	// pending was read and not settled yet: the same entries from both.
	pending, modelPending []core.Entry
	// saved is the real cursor's position, and begin a place before all that it
	// reads.
	saved, begin core.Position
}

// simulation does the same operations on the store and on the model.
type simulation struct {
	k      *kit
	random *rand.Rand
	model  *memory.Store
	twins  []*twin
	ids    []string
	step   int
	owners int
}

// checkModel does random operations on the store and on package memory, and
// compares what both answer.
func checkModel(k *kit) {
	k.Logf("seed %d", k.h.Seed)
	s := &simulation{
		k:      k,
		random: rand.New(rand.NewPCG(k.h.Seed, 0)),
		model:  memory.New(memory.Config{Idle: time.Nanosecond}),
	}
	names := []string{cursorName, "second-route"}
	if k.h.Traits.OneCursor {
		names = names[:1]
	}
	for _, name := range names {
		t := &twin{name: name}
		s.acquire(t, "first", core.Start{Now: true})
		s.twins = append(s.twins, t)
	}
	operations := []struct {
		weight int
		do     func(*twin)
	}{
		{30, s.appendEvents},
		{25, s.read},
		{20, s.settle},
		{5, s.parkOne},
		{5, s.suspect},
		{8, s.newTerm},
		{4, s.release},
		{3, func(t *twin) { s.duplicate() }},
	}
	total := 0
	for _, op := range operations {
		total += op.weight
	}
	for s.step = range k.h.Operations {
		t := s.twins[s.random.IntN(len(s.twins))]
		n := s.random.IntN(total)
		for _, op := range operations {
			if n -= op.weight; n < 0 {
				op.do(t)
				break
			}
		}
		if k.Failed() {
			k.Fatalf("after step %d of seed %d", s.step, k.h.Seed)
		}
	}
	for _, t := range s.twins {
		s.newTerm(t)
		s.read(t)
		s.compareFailed(t)
	}
}

func (s *simulation) appendEvents(*twin) {
	events := make([]core.Event, 1+s.random.IntN(4))
	abort := s.random.IntN(5) == 0
	for i := range events {
		// Each has a key of its own: what is parked is not in the order of keys.
		id := fmt.Sprintf("e%d-%d", s.step, i)
		events[i] = keyedEvent(id, id)
	}
	for _, store := range []Store{s.k.store, s.model} {
		err := store.InTransaction(s.k.ctx, func(ctx context.Context) error {
			if err := store.Append(ctx, events...); err != nil {
				return err
			}
			if abort {
				return errAbort
			}
			return nil
		})
		if abort != errors.Is(err, errAbort) || !abort && err != nil {
			s.k.Errorf("a transaction that aborts (%t): %v", abort, err)
		}
	}
	if !abort {
		for _, e := range events {
			s.ids = append(s.ids, e.ID)
		}
	}
}

// duplicate appends an id that is in the log already.
func (s *simulation) duplicate() {
	if len(s.ids) == 0 {
		return
	}
	id := s.ids[s.random.IntN(len(s.ids))]
	for _, store := range []Store{s.k.store, s.model} {
		err := store.InTransaction(s.k.ctx, func(ctx context.Context) error {
			return store.Append(ctx, event(fmt.Sprintf("d%d", s.step)), event(id))
		})
		s.k.wantDuplicate(err, id)
	}
}

// read reads what the model has, and expects the same of the store.
func (s *simulation) read(t *twin) {
	b, err := t.model.Read(s.k.ctx, core.ReadLimit{})
	if err != nil {
		s.k.Fatalf("reading the model: %v", err)
	}
	if len(b.Entries) == 0 {
		return
	}
	got := s.k.read(t.real, len(b.Entries))
	for i, want := range b.Entries {
		if got[i].Mark.Position().Compare(t.begin) <= 0 {
			s.k.Errorf("%s: %s has the position %v, before the cursor's %v", t.name,
				got[i].Event.ID, got[i].Mark.Position(), t.begin)
		}
		if got[i].Event.ID != want.Event.ID || got[i].Queued != want.Queued {
			s.k.Errorf("%s: read %s (queued %t), want %s (queued %t)", t.name,
				got[i].Event.ID, got[i].Queued, want.Event.ID, want.Queued)
		}
	}
	t.pending = append(t.pending, got...)
	t.modelPending = append(t.modelPending, b.Entries...)
}

// settle saves a part of what was read.
func (s *simulation) settle(t *twin) {
	if len(t.pending) == 0 {
		return
	}
	n := 1 + s.random.IntN(len(t.pending))
	s.k.save(t.real, t.pending[:n]...)
	s.k.save(t.model, t.modelPending[:n]...)
	t.saved = t.pending[n-1].Mark.Position()
	t.pending, t.modelPending = t.pending[n:], t.modelPending[n:]
}

func (s *simulation) parkOne(t *twin) {
	if len(t.pending) == 0 {
		return
	}
	i := s.random.IntN(len(t.pending))
	s.k.park(t.real, t.pending[i])
	s.k.park(t.model, t.modelPending[i])
}

func (s *simulation) suspect(t *twin) {
	if len(t.pending) == 0 {
		return
	}
	s.k.suspect(t.real, t.pending[0])
	s.k.suspect(t.model, t.modelPending[0])
}

// newTerm lets somebody take over, and the old holder try one more write.
func (s *simulation) newTerm(t *twin) {
	staleReal, staleModel, pending, modelPending := t.real, t.model, t.pending, t.modelPending
	s.owners++
	s.acquire(t, fmt.Sprintf("owner-%d", s.owners), core.Start{})
	if len(pending) == 0 {
		return
	}
	writes := fencedWrites()
	w := writes[s.random.IntN(len(writes))]
	s.k.wantFenced(w.name+" of a stale holder", w.write(s.k.ctx, staleReal, pending[0]))
	s.k.wantFenced(w.name+" in the model", w.write(s.k.ctx, staleModel, modelPending[0]))
}

// release ends the term, and the next begins.
func (s *simulation) release(t *twin) {
	for _, c := range []core.Cursor{t.real, t.model} {
		if err := c.Release(s.k.ctx); err != nil {
			s.k.Errorf("releasing: %v", err)
		}
	}
	s.newTerm(t)
}

// acquire begins a term in both, and compares how they found the cursor.
func (s *simulation) acquire(t *twin, owner string, start core.Start) {
	var fence uint64
	if t.real != nil {
		fence = t.real.Term().Fence
	}
	take := func(store Store) core.Cursor {
		req := core.AcquireRequest{Name: t.name, Owner: owner, Start: start}
		c, err := s.k.tryAcquire(store, req)
		if held, ok := errors.AsType[*core.HeldError](err); ok {
			req.Unchanged = held.Revision
			c, err = s.k.tryAcquire(store, req)
		}
		if err != nil {
			s.k.Fatalf("acquiring %s: %v", t.name, err)
		}
		return c
	}
	t.real, t.model = take(s.k.store), take(s.model)
	t.pending, t.modelPending = nil, nil
	got, want := t.real.Term(), t.model.Term()
	if got.Fence <= fence {
		s.k.Errorf("%s: the fence went from %d to %d", t.name, fence, got.Fence)
	}
	if got.Fruitless != want.Fruitless {
		s.k.Errorf("%s: %d fruitless terms, want %d", t.name, got.Fruitless, want.Fruitless)
	}
	switch {
	case t.saved == core.Position{}:
		t.begin = got.Position
	case got.Position != t.saved:
		s.k.Errorf("%s: the position is %v, want %v", t.name, got.Position, t.saved)
	}
}

func (s *simulation) compareFailed(t *twin) {
	if s.k.h.Failed == nil {
		return
	}
	var want []string
	for _, j := range s.model.Parked() {
		if j.Cursor == t.name {
			want = append(want, j.Event.ID)
		}
	}
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(s.k.failedOf(t.name))); !slices.Equal(got, want) {
		s.k.Errorf("%s: kept %v as failed, want %v", t.name, got, want)
	}
}
