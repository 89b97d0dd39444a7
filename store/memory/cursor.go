package memory

import (
	"context"
	"fmt"
	"sort"
	"time"

	"github.com/gooutbox/outbox/core"
)

// cursor is one term, see core.Cursor.
type cursor struct {
	store *Store
	state *cursorState
	lease time.Duration
	term  core.Term

	// Guarded by the store's mutex.
	read     core.Position // where Read goes on
	expires  time.Time
	released bool
}

// mark is the place of a document, or between documents when id is empty.
type mark struct {
	pos core.Position
	id  string
}

func (m mark) Position() core.Position { return m.pos }

func (c *cursor) Term() core.Term { return c.term }

func (c *cursor) Expires() time.Time {
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	return c.expires
}

func (c *cursor) Read(ctx context.Context, limit core.ReadLimit) (core.Batch, error) {
	limit = limit.OrDefaults()
	idle := time.NewTimer(c.store.cfg.Idle)
	defer idle.Stop()
	for {
		if err := ctx.Err(); err != nil {
			return core.Batch{}, fmt.Errorf("reading the log: %w", err)
		}
		if err := c.store.fault(OpRead); err != nil {
			return core.Batch{}, fmt.Errorf("reading the log: %w", err)
		}
		batch, changed, err := c.next(limit)
		if err != nil {
			return core.Batch{}, fmt.Errorf("reading the log: %w", err)
		}
		if len(batch.Entries) > 0 {
			return batch, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
		case <-idle.C:
			return batch, nil
		}
	}
}

// next returns what is there to read. changed is closed when it is worth
// another look.
func (c *cursor) next(limit core.ReadLimit) (batch core.Batch, changed <-chan struct{}, err error) {
	s := c.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if !c.holds() {
		return core.Batch{}, nil, core.ErrFenced
	}
	first := sort.Search(len(s.log), func(i int) bool { return s.log[i].pos.Compare(c.read) > 0 })
	size := 0
	for _, d := range s.log[first:] {
		if !c.state.skips(d) {
			n := d.event.Size() + entryOverhead
			if len(batch.Entries) == limit.Events || len(batch.Entries) > 0 && size+n > limit.Bytes {
				return batch, s.changed, nil
			}
			size += n
			batch.Entries = append(batch.Entries, s.entry(c.state.name, d, n))
		}
		c.read = d.pos
	}
	if len(batch.Entries) == 0 {
		c.read = s.end()
		batch.Reached = mark{pos: c.read}
	}
	return batch, s.changed, nil
}

// entry shows a document to a cursor. The caller holds mu.
func (s *Store) entry(cursor string, d *document, size int) core.Entry {
	_, queued := s.queue.jobs[parkedID(cursor, d.event.ID)]
	queued = queued || s.parkedBehind(cursor, d)
	e := newDocument(d.event, d.writtenAt).event
	return core.Entry{
		Event: e, Mark: mark{pos: d.pos, id: d.event.ID}, Size: size,
		CommittedAt: d.committedAt, Queued: queued, Err: d.err,
	}
}

func (c *cursor) Save(_ context.Context, settled []core.Mark) error {
	err := c.write(OpSave, func(s *Store) error {
		for _, m := range settled {
			m, err := own(m)
			if err != nil {
				return err
			}
			if m.pos.Compare(c.state.position) > 0 {
				c.state.position = m.pos
				c.state.moved = true
			}
			if d := s.ids[m.id]; d != nil && c.state.marking {
				d.published, d.publishedClock = s.cfg.Now(), s.clock
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("saving the position: %w", err)
	}
	return nil
}

func (c *cursor) Renew(context.Context) error {
	if err := c.write(OpRenew, func(*Store) error { return nil }); err != nil {
		return fmt.Errorf("renewing the lease: %w", err)
	}
	return nil
}

func (c *cursor) Suspect(_ context.Context, m core.Mark) error {
	err := c.write(OpSuspect, func(*Store) error {
		if m == nil {
			c.state.suspect = suspectNote{}
			return nil
		}
		m, err := own(m)
		if err != nil {
			return err
		}
		note := &c.state.suspect
		if note.id != m.id {
			*note = suspectNote{id: m.id}
		}
		if note.fence != c.term.Fence {
			note.count, note.fence = note.count+1, c.term.Fence
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("noting the suspect: %w", err)
	}
	return nil
}

func (c *cursor) Release(context.Context) error {
	s := c.store
	if err := s.fault(OpRelease); err != nil {
		return fmt.Errorf("releasing the cursor: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.holds() {
		if !c.state.moved {
			c.state.fruitless = c.term.Fruitless - 1 // this term doesn't count
		}
		c.state.leaseUntil = time.Time{}
		c.state.revision++
	}
	c.released = true
	s.wake()
	return nil
}

// holds tells whether this term is the cursor's last and not over. The caller
// holds mu.
func (c *cursor) holds() bool { return !c.released && c.state.fence == c.term.Fence }

// write does one fenced write, which extends the lease when it succeeds.
func (c *cursor) write(op string, change func(*Store) error) error {
	s := c.store
	sent := time.Now()
	if err := s.fault(op); err != nil {
		return err
	}
	if err := c.writeLocked(sent, change); err != nil {
		return err
	}
	return s.lost(op)
}

func (c *cursor) writeLocked(sent time.Time, change func(*Store) error) error {
	s := c.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if !c.holds() {
		return core.ErrFenced
	}
	if err := change(s); err != nil {
		return err
	}
	c.state.leaseUntil = s.cfg.Now().Add(c.lease)
	c.state.revision++
	c.expires = sent.Add(c.lease)
	return nil
}

// own returns the mark if it came from a store of this kind.
func own(m core.Mark) (mark, error) {
	mine, ok := m.(mark)
	if !ok {
		return mark{}, fmt.Errorf("a mark of another store: %T", m)
	}
	return mine, nil
}
