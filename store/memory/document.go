package memory

import (
	"bytes"
	"maps"
	"time"

	"github.com/google/uuid"

	"github.com/gooutbox/outbox/core"
)

// entryOverhead is about what an entry takes beside its strings and payload.
const entryOverhead = 256

// document is an event as the log holds it. Only published changes.
type document struct {
	event core.Event
	pos   core.Position
	// writtenAt is when it was appended, committedAt when that was committed.
	writtenAt, committedAt time.Time
	// published is when a cursor marked it, and publishedClock the store's
	// clock then; both are zero while it isn't marked.
	published      time.Time
	publishedClock uint64
	// err is why the document is no event, if so.
	err error
}

// Foreign is a document that didn't come through Append.
type Foreign struct {
	// Event is stored as it is, without validation. An ID is assigned when it
	// has none.
	Event core.Event
	// WrittenAt dates the document. Defaults to now.
	WrittenAt time.Time
	// Published marks it as published.
	Published bool
	// Err makes it a document that can't be decoded, for this reason.
	Err error
}

// Put commits documents one after the other as a foreign producer would:
// without transaction and without checks.
func (s *Store) Put(docs ...Foreign) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.cfg.Now()
	for _, f := range docs {
		d := newDocument(f.Event, now)
		d.err = f.Err
		if !f.WrittenAt.IsZero() {
			d.writtenAt = f.WrittenAt
		}
		s.commit([]*document{d})
		if f.Published {
			d.published, d.publishedClock = now, s.clock
		}
	}
}

// PublishedAt tells when the event with this id was marked as published; zero
// when it isn't, or is not there.
func (s *Store) PublishedAt(id string) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.ids[id]; d != nil {
		return d.published
	}
	return time.Time{}
}

// commit appends documents to the log as one transaction. The caller holds mu.
func (s *Store) commit(docs []*document) {
	if len(docs) == 0 {
		return
	}
	s.clock++
	now := s.cfg.Now()
	for i, d := range docs {
		d.pos = core.Position{Time: s.clock, Ordinal: uint64(i)}
		d.committedAt = now
		s.ids[d.event.ID] = d
		s.log = append(s.log, d)
	}
	s.wake()
}

// newDocument copies what the caller may change later, assigns an id, and cuts
// times to milliseconds.
func newDocument(e core.Event, now time.Time) *document {
	if e.ID == "" {
		e.ID = uuid.Must(uuid.NewV7()).String()
	}
	if e.OccurredAt.IsZero() {
		e.OccurredAt = now
	}
	e.OccurredAt = e.OccurredAt.UTC().Truncate(time.Millisecond)
	e.Payload = bytes.Clone(e.Payload)
	e.Headers = maps.Clone(e.Headers)
	return &document{event: e, writtenAt: now}
}
