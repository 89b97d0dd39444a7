package mongo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/crash"
)

const (
	// cleanRange is how many events one delete covers.
	cleanRange = 1000
	// cleanForeign is how many events without a seq one Clean looks at.
	cleanForeign = 50_000
)

// Clean removes events in bounded ranges until none is left to remove, or ctx
// ends. It is safe to run in several processes at once, and to be cut short at
// any place.
//
// It removes nothing when a cursor of req.Cursors has no document yet, or there
// is no cursor at all. It leaves events that a job refers to and, where the log
// is polled, those that are not marked. Events without a seq are removed by a
// later Clean of the same Store than the one that first saw them, once every
// cursor is past that time; those without an OccurredAt only where their _id
// is an ObjectId, which tells their age.
func (s *Store) Clean(ctx context.Context, req core.CleanRequest) (core.CleanResult, error) {
	if req.Retention <= 0 {
		return core.CleanResult{}, errors.New("cleaning the log: a retention is needed")
	}
	c, held, err := s.newCleaning(ctx, req)
	if err != nil || held != "" {
		return core.CleanResult{HeldBy: held}, wrapClean(err)
	}
	err = c.run(ctx)
	s.metrics.cleaned.Add(ctx, c.result.Removed, s.logAttributes())
	return c.result, wrapClean(err)
}

func wrapClean(err error) error {
	if err != nil {
		return fmt.Errorf("cleaning the log: %w", err)
	}
	return nil
}

// cleaning is one run of the cleaner.
type cleaning struct {
	store   *Store
	poll    bool
	cursors []cursorDoc
	// old is the time before which events have passed their retention.
	old time.Time
	// bound is the seq before which events may go.
	bound bson.Timestamp
	// slowest names the cursor that keeps bound from reaching old.
	slowest string
	keep    bson.A // ids that jobs refer to
	// keepLong tells that a job refers to an id by its hash, by which the server
	// can't look: all events with long ids stay.
	keepLong bool
	result   core.CleanResult
}

// newCleaning finds what may go. held names a cursor without which nothing may.
func (s *Store) newCleaning(ctx context.Context, req core.CleanRequest) (c *cleaning, held string, err error) {
	if err := s.checkLayout(ctx); err != nil {
		return nil, "", err
	}
	poll, err := s.polls(ctx)
	if err != nil {
		return nil, "", err
	}
	margin, err := s.margin(ctx)
	if err != nil {
		return nil, "", err
	}
	now, err := s.now(ctx)
	if err != nil {
		return nil, "", err
	}
	c = &cleaning{store: s, poll: poll, old: now.Add(-req.Retention)}
	if c.cursors, err = s.allCursors(ctx); err != nil {
		return nil, "", err
	}
	for _, name := range req.Cursors {
		if !slices.ContainsFunc(c.cursors, func(d cursorDoc) bool { return d.Name == name }) {
			return nil, name, nil
		}
	}
	c.bound = bson.Timestamp{T: uint32(max(0, c.old.Unix()))} //nolint:gosec // until 2106
	if poll {
		return c, "", nil // the marks tell what was delivered
	}
	if len(c.cursors) == 0 {
		c.bound = bson.Timestamp{}
	}
	for _, doc := range c.cursors {
		if floor := before(floorOf(doc, margin), margin); floor.Before(c.bound) {
			c.bound, c.slowest = floor, doc.Name
		}
	}
	return c, "", nil
}

func (s *Store) allCursors(ctx context.Context) ([]cursorDoc, error) {
	var raws []bson.Raw
	found, err := s.cursors.Find(ctx, bson.D{})
	if err == nil {
		err = found.All(ctx, &raws)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the cursors: %w", err)
	}
	docs := make([]cursorDoc, len(raws))
	for i, raw := range raws {
		if docs[i], err = s.decodeCursor(raw); err != nil {
			return nil, err
		}
	}
	return docs, nil
}

// floorOf is the place that a cursor has settled everything before, up to the
// margin.
func floorOf(doc cursorDoc, margin time.Duration) bson.Timestamp {
	if doc.Scan == nil {
		return doc.Position.Time
	}
	seq := doc.Scan.Seq
	if seq.IsZero() {
		seq = doc.From
	}
	if doc.Scan.At.IsZero() {
		return seq
	}
	return earlier(seq, before(doc.Scan.At, margin))
}

func (c *cleaning) run(ctx context.Context) error {
	if err := c.loadKept(ctx); err != nil {
		return err
	}
	if err := c.ranges(ctx); err != nil {
		return err
	}
	if c.slowest != "" {
		held, err := c.exists(ctx, bson.D{{Key: c.seq(), Value: bson.D{
			{Key: "$gte", Value: c.bound}, {Key: "$lt", Value: bson.Timestamp{T: uint32(max(0, c.old.Unix()))}}, //nolint:gosec // until 2106
		}}})
		if err != nil {
			return err
		}
		if held {
			c.result.HeldBy = c.slowest
		}
	}
	return c.foreign(ctx)
}

func (c *cleaning) seq() string { return c.store.cfg.Fields.Seq }

// loadKept loads the ids of events that jobs refer to.
func (c *cleaning) loadKept(ctx context.Context) error {
	c.keep = bson.A{}
	found, err := c.store.jobs.Find(ctx, bson.D{{Key: "reference", Value: op("$exists", true)}},
		options.Find().SetProjection(bson.D{{Key: "reference", Value: 1}, {Key: "_id", Value: 0}}))
	if err != nil {
		return fmt.Errorf("reading which events jobs refer to: %w", err)
	}
	defer found.Close(ctx) //nolint:errcheck // nothing was written
	for found.Next(ctx) {
		v := found.Current.Lookup("reference")
		c.keep = append(c.keep, bson.RawValue{Type: v.Type, Value: slices.Clone(v.Value)})
		c.keepLong = c.keepLong || isHashedID(v)
	}
	if err := found.Err(); err != nil {
		return fmt.Errorf("reading which events jobs refer to: %w", err)
	}
	return nil
}

// ranges deletes the events before the bound, range by range in the order of
// seq.
func (c *cleaning) ranges(ctx context.Context) error {
	last := bson.Timestamp{}
	for last.Before(c.bound) {
		// The first event after the range; the index alone answers.
		next, found, err := c.seqAfter(ctx, last, cleanRange)
		if err != nil {
			return err
		}
		if !found {
			next = c.bound
		}
		filter := c.removable(bson.D{{Key: c.seq(), Value: bson.D{{Key: "$gt", Value: last}, {Key: "$lt", Value: next}}}})
		res, err := c.store.log.DeleteMany(ctx, filter)
		if err != nil {
			return fmt.Errorf("removing a range of events: %w", err)
		}
		c.result.Removed += res.DeletedCount
		crash.Here("mongo.cleaner")
		last = bson.Timestamp{T: next.T, I: max(next.I, 1) - 1}
		if !found {
			return nil
		}
	}
	return nil
}

// seqAfter is the seq of the nth event after last and before the bound.
func (c *cleaning) seqAfter(ctx context.Context, last bson.Timestamp, n int64) (bson.Timestamp, bool, error) {
	var raw bson.Raw
	raw, err := c.store.log.FindOne(ctx,
		bson.D{{Key: c.seq(), Value: bson.D{{Key: "$gt", Value: last}, {Key: "$lt", Value: c.bound}}}},
		options.FindOne().SetSort(bson.D{{Key: c.seq(), Value: 1}}).SetSkip(n).
			SetProjection(bson.D{{Key: "_id", Value: 0}, {Key: c.seq(), Value: 1}})).Raw()
	switch {
	case errors.Is(err, mongo.ErrNoDocuments):
		return bson.Timestamp{}, false, nil
	case err != nil:
		return bson.Timestamp{}, false, fmt.Errorf("looking for the end of a range: %w", err)
	}
	t, i, _ := raw.Lookup(c.seq()).TimestampOK()
	return bson.Timestamp{T: t, I: i}, true, nil
}

// removable adds to a filter what no event that goes may miss.
func (c *cleaning) removable(filter bson.D) bson.D {
	if len(c.keep) > 0 {
		filter = append(filter, bson.E{Key: "_id", Value: op("$nin", c.keep)})
	}
	if c.keepLong {
		filter = append(filter, bson.E{Key: "$nor", Value: bson.A{longID()}})
	}
	if c.poll {
		filter = append(filter, bson.E{Key: c.store.cfg.Fields.PublishedAt, Value: op("$ne", nil)})
	}
	return filter
}

func (c *cleaning) exists(ctx context.Context, filter bson.D) (bool, error) {
	err := c.store.log.FindOne(ctx, c.removable(filter), options.FindOne().SetProjection(bson.D{{Key: "_id", Value: 1}})).Err()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return false, nil
	}
	return err == nil, err
}
