package mongo

import (
	"context"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/gooutbox/outbox/core"
)

const (
	// entryOverhead is what an entry takes beside the bytes of its texts and its
	// payload: the event and the mark. headerOverhead is that of a header.
	entryOverhead  = 512
	headerOverhead = 64
	// marksAtOnce and arenaBytes are how much memory marks share. One mark that
	// is kept keeps its neighbours.
	marksAtOnce = 64
	arenaBytes  = 16 << 10
)

// batch gathers what one read returns.
type batch struct {
	core.Batch
	limit core.ReadLimit
	bytes int
	// expect is how many entries are at hand when the first one is added.
	expect int
	// marks and arena hold the marks, and the ids and tokens that these point
	// at. Nothing in them points into what the driver has read, which would keep
	// whole replies in memory.
	marks  []mark
	states []scanState
	arena  []byte
}

// found is one stored document as a stream, scan or poll came upon it.
type found struct {
	doc       bson.Raw
	token     bson.Raw
	scan      *scanState
	committed time.Time
	// commit is the cluster time of the commit, which a stream tells.
	commit bson.Timestamp
}

func (b *batch) full() bool { return len(b.Entries) >= b.limit.Events }

// fits tells whether a document may still be added, as far as its own length
// tells. One always may.
func (b *batch) fits(doc bson.Raw) bool { return b.takes(len(doc) + entryOverhead) }

func (b *batch) takes(size int) bool { return len(b.Entries) == 0 || b.bytes+size <= b.limit.Bytes }

// keep copies p.
func (b *batch) keep(p []byte) []byte {
	if len(p) == 0 {
		return nil
	}
	if cap(b.arena)-len(b.arena) < len(p) {
		b.arena = make([]byte, 0, max(arenaBytes, len(p)))
	}
	start := len(b.arena)
	b.arena = append(b.arena, p...)
	return b.arena[start:len(b.arena):len(b.arena)]
}

func (b *batch) newMark() *mark {
	if len(b.marks) == cap(b.marks) {
		b.marks = make([]mark, 0, min(marksAtOnce, b.limit.Events))
	}
	b.marks = append(b.marks, mark{})
	return &b.marks[len(b.marks)-1]
}

func (b *batch) newState(state scanState) *scanState {
	if len(b.states) == cap(b.states) {
		b.states = make([]scanState, 0, min(marksAtOnce, b.limit.Events))
	}
	b.states = append(b.states, state)
	return &b.states[len(b.states)-1]
}

// add decodes a document into an entry at pos. added is false where the entry
// doesn't fit, which shows only then: JSON takes up to twelve times the room of
// the document that it is made of. An error means that the document can't be
// read now, but may be later. In both cases nothing was added.
func (r *reader) add(ctx context.Context, b *batch, f found, pos core.Position) (added bool, err error) {
	event, err := r.store.decodeEvent(ctx, f.doc)
	if err != nil && !isDecodeError(err) {
		return false, err
	}
	id := idOf(f.doc)
	size := event.Size() + headerOverhead*len(event.Headers) + len(id.Value) + len(f.token) + entryOverhead
	if err != nil {
		size += len(f.doc)
	}
	if !b.takes(size) {
		return false, nil
	}
	m := b.newMark()
	m.pos, m.scan = pos, f.scan
	m.committed = !f.commit.IsZero() && numberOf(f.commit) == pos.Time
	m.id = bson.RawValue{Type: id.Type, Value: b.keep(id.Value)}
	if r.store.cfg.Fields.ID != "_id" {
		m.event = strings.Clone(event.ID)
	}
	m.token = b.keep(f.token)
	if err != nil {
		m.raw = slices.Clone(f.doc)
	}
	if b.Entries == nil {
		b.Entries = make([]core.Entry, 0, min(b.expect+1, b.limit.Events))
	}
	queued := r.queued(id) || m.committed && r.behind(event.AggregateID, f.commit)
	b.bytes += size
	b.Entries = append(b.Entries, core.Entry{
		Event: event, Mark: m, Size: size, CommittedAt: f.committed, Queued: queued, Err: err,
	})
	return true, nil
}

// idOf finds the _id of a stored document, which the server puts first.
func idOf(doc bson.Raw) bson.RawValue {
	els := walk(doc)
	for els.next() {
		if string(els.name) == "_id" {
			return els.value
		}
	}
	return bson.RawValue{}
}

// meanSize follows the mean size of the documents that are read, so that a
// reply of the server holds about what a read may return.
type meanSize struct{ bytes float64 }

func (m *meanSize) add(n int) {
	if m.bytes == 0 {
		m.bytes = float64(n)
		return
	}
	m.bytes += (float64(n) - m.bytes) / 16
}

// batchSize is how many documents to ask the server for. The server itself
// ends a reply at 16 MiB.
func (m *meanSize) batchSize(limit core.ReadLimit) int32 {
	n := limit.Events
	if m.bytes > 0 {
		n = min(n, int(float64(limit.Bytes)/(m.bytes+entryOverhead)))
	}
	return int32(min(max(1, n), 100_000)) //nolint:gosec // bounded
}
