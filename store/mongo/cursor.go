package mongo

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/gooutbox/outbox/core"
)

// cursor is one term of a holder, see core.Cursor.
type cursor struct {
	store  *Store
	doc    cursorDoc // as it was acquired
	lease  time.Duration
	margin time.Duration
	poll   bool
	// marks tells that a Save sets published_at.
	marks  bool
	reader *reader

	// saving keeps Saves in order: one that was overtaken would move the
	// position back.
	saving sync.Mutex

	mu       sync.Mutex
	expires  time.Time
	position core.Position // last saved
	moved    bool          // a Save of this term moved the position
	noted    bson.RawValue // the event that Suspect noted last
	counted  bool          // it was noted in this term
	count    int           // in how many terms in a row
	released bool
	queued   map[string]struct{} // keys of the events that have a job
	behind   map[string]uint64   // see isBehind
}

var _ core.Cursor = (*cursor)(nil)

// readerConfig is what a reader gets from its cursor.
type readerConfig struct {
	// doc is the cursor's document as it was acquired: token, position, scan
	// and from say where to read on.
	doc cursorDoc
	// poll reads by queries on what is not marked yet, instead of the stream.
	poll bool
	// margin is how far a scan goes back behind a position.
	margin time.Duration
	// queued tells whether the event with this _id has a job.
	queued func(id bson.RawValue) bool
	// behind tells whether an event of this key that was committed later than
	// this has a job.
	behind func(key string, committed bson.Timestamp) bool
	// recovering must be called before a scan reads events behind the position
	// in doc less the margin, or behind what an earlier call named: it loads
	// the jobs of the events from this cluster time on.
	recovering func(ctx context.Context, from bson.Timestamp) error
}

func newCursor(s *Store, req core.AcquireRequest, doc cursorDoc, sent time.Time, margin time.Duration, poll bool) *cursor {
	c := &cursor{
		store: s, doc: doc, lease: req.Lease, margin: margin, poll: poll, marks: poll || req.Marking,
		expires: sent.Add(req.Lease), position: doc.Position.position(),
		queued: map[string]struct{}{}, behind: map[string]uint64{},
	}
	if doc.Suspect != nil {
		c.noted, c.count = doc.Suspect.ID, doc.Suspect.Count
	}
	return c
}

// Term tells how the cursor was found.
func (c *cursor) Term() core.Term {
	t := core.Term{
		Fence:     numberOf(c.doc.Fence),
		Position:  c.doc.Position.position(),
		Fruitless: max(0, c.doc.Fruitless-1),
	}
	if c.doc.Suspect != nil {
		if t.SuspectID = c.doc.Suspect.Event; t.SuspectID == "" {
			t.SuspectID, _ = textOf(c.doc.Suspect.ID)
		}
		t.SuspectCount = c.doc.Suspect.Count
	}
	return t
}

// Expires is when the lease ends if nothing more is written.
func (c *cursor) Expires() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.expires
}

// extended notes that a write of the holder succeeded.
func (c *cursor) extended(sent time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if until := sent.Add(c.lease); until.After(c.expires) {
		c.expires = until
	}
}

// Read waits for events.
func (c *cursor) Read(ctx context.Context, limit core.ReadLimit) (core.Batch, error) {
	c.mu.Lock()
	released := c.released
	c.mu.Unlock()
	if released {
		return core.Batch{}, core.ErrFenced
	}
	return c.reader.read(ctx, limit.OrDefaults())
}

// holder is the condition of every write: the caller still is the one. A lease
// that ran out does not matter as long as nobody took over.
func (c *cursor) holder() bson.D {
	return bson.D{{Key: "_id", Value: c.doc.Name}, {Key: "owner", Value: c.doc.Owner}, {Key: "fence", Value: c.doc.Fence}}
}

// write changes the cursor's document in one fenced update, which extends the
// lease. set are expressions; unset are names.
func (c *cursor) write(ctx context.Context, set bson.D, unset ...string) error {
	return c.extending(func() error { return c.update(ctx, set, unset...) })
}

// extending notes the end of the lease after a write that succeeded, counted
// from before it was sent.
func (c *cursor) extending(write func() error) error {
	sent := time.Now()
	if err := write(); err != nil {
		return err
	}
	c.extended(sent)
	return nil
}

// update is write in a transaction, which extends the lease only when it
// commits.
func (c *cursor) update(ctx context.Context, set bson.D, unset ...string) error {
	set = append(bson.D{
		{Key: "lease_until", Value: leaseFromNow(c.lease)},
		{Key: "revision", Value: op("$add", bson.A{"$revision", int64(1)})},
	}, set...)
	for _, name := range unset {
		set = append(set, bson.E{Key: name, Value: "$$REMOVE"})
	}
	res, err := c.store.cursors.UpdateOne(ctx, c.holder(), bson.A{op("$set", set)})
	if err != nil {
		return err
	}
	if res.MatchedCount == 0 {
		return core.ErrFenced
	}
	return nil
}

// Renew extends the lease.
func (c *cursor) Renew(ctx context.Context) error {
	if err := c.write(ctx, nil); err != nil {
		return fmt.Errorf("renewing the lease of cursor %q: %w", c.doc.Name, err)
	}
	return nil
}

// Suspect notes the entry that is about to be sent alone, or takes the note
// back.
func (c *cursor) Suspect(ctx context.Context, m core.Mark) error {
	if m == nil {
		return c.unsuspect(ctx)
	}
	at, err := ownMark(m)
	if err != nil {
		return err
	}
	c.mu.Lock()
	count := 1
	if c.noted.Equal(at.id) {
		count = c.count
		if !c.counted {
			count++
		}
	}
	c.mu.Unlock()
	note := suspectNote{Event: at.event, ID: at.id, Count: count}
	if err := c.write(ctx, bson.D{{Key: "suspect", Value: literal(note)}}); err != nil {
		return fmt.Errorf("noting the event that cursor %q sends alone: %w", c.doc.Name, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.noted, c.count, c.counted = at.id, count, true
	return nil
}

func (c *cursor) unsuspect(ctx context.Context) error {
	if err := c.write(ctx, nil, "suspect"); err != nil {
		return fmt.Errorf("taking back the note of cursor %q: %w", c.doc.Name, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.noted, c.count, c.counted = bson.RawValue{}, 0, false
	return nil
}

// Release gives the lease back; the fence stays. A term that was released did
// not crash, so it doesn't count as one without progress.
func (c *cursor) Release(ctx context.Context) error {
	c.mu.Lock()
	c.released = true
	moved := c.moved
	c.mu.Unlock()
	c.reader.close(ctx)
	set := bson.D{
		{Key: "owner", Value: ""},
		{Key: "lease_until", Value: bson.DateTime(0)},
		{Key: "revision", Value: op("$add", bson.A{"$revision", int64(1)})},
	}
	if !moved {
		set = append(set, bson.E{Key: "fruitless", Value: int32(max(0, c.doc.Fruitless-1))}) //nolint:gosec // a small count
	}
	// Nothing matched: the lease was lost or is released already, which is what
	// the caller wants.
	if _, err := c.store.cursors.UpdateOne(ctx, c.holder(), bson.A{op("$set", set)}); err != nil {
		return fmt.Errorf("releasing cursor %q: %w", c.doc.Name, err)
	}
	return nil
}

// isQueued tells whether the event with this _id has a job.
func (c *cursor) isQueued(id bson.RawValue) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queued) == 0 {
		return false
	}
	_, ok := c.queued[idKey(noteOf(id))]
	return ok
}

// idKey tells ids apart by value and BSON type.
func idKey(id bson.RawValue) string {
	return string(append([]byte{byte(id.Type)}, id.Value...))
}

// loadJobs adds the ids of the cursor's jobs, in every state, whose events are
// at or after from.
func (c *cursor) loadJobs(ctx context.Context, from bson.Timestamp) error {
	filter := bson.D{{Key: "cursor", Value: c.doc.Name}}
	if !from.IsZero() {
		filter = append(filter, bson.E{Key: "position.time", Value: op("$gte", from)})
	}
	found, err := c.store.jobs.Find(ctx, filter, options.Find().SetProjection(bson.D{
		{Key: "_id", Value: 1}, {Key: "ordered", Value: 1}, {Key: "aggregate_id", Value: 1}, {Key: "position", Value: 1},
	}))
	if err != nil {
		return fmt.Errorf("loading the jobs of cursor %q: %w", c.doc.Name, err)
	}
	return c.addJobs(ctx, found)
}

func (c *cursor) addJobs(ctx context.Context, found *mongo.Cursor) error {
	defer found.Close(ctx) //nolint:errcheck // nothing was written
	for found.Next(ctx) {
		c.addJob(found.Current)
	}
	if err := found.Err(); err != nil {
		return fmt.Errorf("loading the jobs of cursor %q: %w", c.doc.Name, err)
	}
	return nil
}

// addJob notes what reading must know of a job.
func (c *cursor) addJob(job bson.Raw) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queued[idKey(noteOf(job.Lookup("_id", "event")))] = struct{}{}
	if ordered, _ := job.Lookup("ordered").BooleanOK(); !ordered {
		return
	}
	key, ok := textOf(job.Lookup("aggregate_id"))
	t, i, dated := job.Lookup("position", "time").TimestampOK()
	if committed := numberOf(bson.Timestamp{T: t, I: i}); ok && dated && key != "" {
		c.behind[key] = max(c.behind[key], committed)
	}
}

// isBehind tells whether an event of this key that was committed later than this
// was parked in the order of its key. Then this one was settled before, and only
// the position, which another key held back, has not passed it.
//
// To say so wrongly would lose an event; not to say so sends one twice. So it is
// said only of commits that can be compared: of events that a stream read, whose
// positions have the time of their own commit. A scan's position is the time of
// its snapshot, later than the commits of all that it reads: an event that the
// stream gives, after a scan was cut short, may be before the position of a job
// which was committed earlier than it. A scan's own entries are never behind
// either: each scan has a later snapshot than all jobs that an earlier term
// parked. Neither are events of one transaction, whose running numbers may be
// other ones when they are read again, nor jobs whose key is not known or was
// cut.
func (c *cursor) isBehind(key string, committed bson.Timestamp) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return numberOf(committed) < c.behind[key]
}

// ownMark is a mark that this store made.
func ownMark(m core.Mark) (*mark, error) {
	own, ok := m.(*mark)
	if !ok {
		return nil, fmt.Errorf("a mark of type %T was not made by this store", m)
	}
	return own, nil
}
