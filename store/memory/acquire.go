package memory

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/gooutbox/outbox/core"
)

// cursorState is what the store knows of a cursor, guarded by its mutex.
type cursorState struct {
	name, owner string
	sink        string
	fence       uint64
	leaseUntil  time.Time
	// revision rises with every write of a holder.
	revision uint64
	marking  bool

	// begin is where the cursor began, position that of its last Save; zero
	// before the first.
	begin, position core.Position
	// from and createdClock filter what was there when the cursor was created:
	// documents written before from, and, unless includePublished, those
	// published at that clock.
	from             time.Time
	createdClock     uint64
	includePublished bool

	// moved tells whether a Save of the present term moved the position.
	moved     bool
	fruitless int
	suspect   suspectNote
}

// suspectNote is the event that was last noted before it was sent alone.
type suspectNote struct {
	id    string
	count int
	fence uint64 // of the term that noted it last
}

// after is the place behind which the cursor goes on.
func (c *cursorState) after() core.Position {
	if c.position.Compare(c.begin) > 0 {
		return c.position
	}
	return c.begin
}

// skips tells whether the start of the cursor leaves the document out.
func (c *cursorState) skips(d *document) bool {
	if d.writtenAt.Before(c.from) {
		return true
	}
	return !c.includePublished && d.publishedClock > 0 && d.publishedClock <= c.createdClock
}

// Acquire makes the caller the holder of a cursor, see core.Log. Name and Owner
// are required.
func (s *Store) Acquire(ctx context.Context, req core.AcquireRequest) (core.Cursor, error) {
	c, err := s.acquire(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("acquiring the cursor %q: %w", req.Name, err)
	}
	return c, nil
}

func (s *Store) acquire(ctx context.Context, req core.AcquireRequest) (*cursor, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if req.Name == "" || req.Owner == "" {
		return nil, errors.New("a cursor needs a name and an owner")
	}
	if req.Lease <= 0 {
		req.Lease = core.DefaultCursorLease
	}
	if err := s.fault(OpAcquire); err != nil {
		return nil, err
	}
	sent := time.Now()
	c, err := s.takeOver(req, sent)
	if err != nil {
		return nil, err
	}
	return c, s.lost(OpAcquire)
}

func (s *Store) takeOver(req core.AcquireRequest, sent time.Time) (*cursor, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.cfg.Now()
	state := s.cursors[req.Name]
	if state == nil {
		state = s.newCursor(req)
	} else {
		revision := strconv.FormatUint(state.revision, 10)
		held := now.Before(state.leaseUntil) && state.owner != req.Owner
		if held && req.Unchanged != revision {
			return nil, &core.HeldError{Cursor: req.Name, Owner: state.owner, Revision: revision}
		}
		state.fruitless++
		if state.moved {
			state.fruitless = 0
		}
	}
	s.clock++
	state.fence, state.owner, state.marking, state.sink = s.clock, req.Owner, req.Marking, req.Sink
	state.leaseUntil = now.Add(req.Lease)
	state.moved = false
	state.revision++
	s.wake()
	return &cursor{
		store: s,
		state: state,
		lease: req.Lease,
		term: core.Term{
			Fence: state.fence, Position: state.position, Fruitless: state.fruitless,
			SuspectID: state.suspect.id, SuspectCount: state.suspect.count,
		},
		read:    state.after(),
		expires: sent.Add(req.Lease),
	}, nil
}

// newCursor creates a cursor that begins where the request says. The caller
// holds mu.
func (s *Store) newCursor(req core.AcquireRequest) *cursorState {
	state := &cursorState{
		name: req.Name, from: req.Start.At, createdClock: s.clock,
		includePublished: req.Start.IncludePublished,
	}
	if req.Start.Now {
		state.begin = s.end()
	}
	s.cursors[req.Name] = state
	return state
}
