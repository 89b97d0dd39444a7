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
)

var (
	// errInvalidated: the collection was dropped or renamed. The stream goes on
	// after that, with what is inserted into the next one of its name.
	errInvalidated = errors.New("the log's collection was dropped or renamed")
	// errReplaced: another collection was given the log's name.
	errReplaced = errors.New("another collection took the name of the log's collection")
	// errEnded: the server closed the stream without an error.
	errEnded = errors.New("the server ended the change stream")
)

// stream reads events in commit order from the collection's change stream.
type stream struct {
	r  *reader
	cs *mongo.ChangeStream
	// pending is a change that was taken from the driver and not yet returned.
	pending bson.Raw
	// replaced tells that another collection was renamed to the log's name.
	replaced bool
}

// streamPipeline lets through what was inserted, and what ends a stream:
// without the latter the stream would end without a word, and its token again
// and again. Field names that no one reads are left out.
var streamPipeline = mongo.Pipeline{
	op("$match", op("operationType", op("$in", bson.A{"insert", "drop", "rename", "dropDatabase", "invalidate"}))),
	op("$unset", bson.A{"documentKey", "lsid", "txnNumber"}),
}

// openStream opens the stream at the reader's place.
func (r *reader) openStream(ctx context.Context) error {
	// An empty first batch makes the open fast and gives a token at once,
	// however far the server has to look for the first event.
	opts := options.ChangeStream().SetBatchSize(0).SetMaxAwaitTime(r.store.cfg.ReadWait)
	if r.token != nil {
		// Unlike resumeAfter it goes on after the collection was dropped.
		opts.SetStartAfter(r.token)
	} else {
		opts.SetStartAtOperationTime(&r.from)
	}
	s := &stream{r: r}
	var err error
	unanswered := r.patience.call(ctx, func(ctx context.Context) {
		if s.cs, err = r.store.log.Watch(ctx, streamPipeline, opts); err == nil {
			s.cs.TryNext(ctx) // takes the empty batch, without a call
			err = s.cs.Err()
		}
	})
	if err != nil {
		if unanswered != nil {
			err = unanswered
		}
		if s.cs != nil {
			s.close(ctx)
		}
		return err
	}
	r.stream = s
	return nil
}

func (s *stream) close(ctx context.Context) {
	_ = s.cs.Close(ctx) // the server forgets it in any case
}

// fill adds what is there. When nothing is it waits, and an empty batch then
// tells how far the stream has come.
func (s *stream) fill(ctx context.Context, b *batch) error {
	for !b.full() {
		if s.pending == nil {
			if len(b.Entries) > 0 && s.cs.RemainingBatchLength() == 0 {
				return nil
			}
			if err := s.next(ctx, b); err != nil {
				return err
			}
			if s.pending == nil {
				s.gave()
				b.Reached = s.reached(b)
				return nil
			}
		}
		more, err := s.take(ctx, b)
		if err != nil || !more {
			return err
		}
	}
	return nil
}

// next takes one change from the driver, which asks the server when it has none
// left. pending stays nil when there is none yet.
func (s *stream) next(ctx context.Context, b *batch) error {
	got := false
	if s.cs.RemainingBatchLength() > 0 {
		got = s.cs.TryNext(ctx)
	} else {
		s.cs.SetBatchSize(s.r.mean.batchSize(b.limit))
		id := s.cs.ID()
		err := s.r.patience.call(ctx, func(ctx context.Context) { got = s.cs.TryNext(ctx) })
		if err != nil && !got {
			return err
		}
		if s.cs.ID() != id && s.cs.ID() != 0 {
			// The driver resumed by itself.
			s.r.store.metrics.reopened.Add(ctx, 1, s.r.store.cursorAttributes(s.r.doc.Name))
		}
	}
	switch {
	case got:
		s.pending = s.cs.Current
		b.expect = s.cs.RemainingBatchLength()
		s.r.mean.add(len(s.pending))
	case s.cs.Err() != nil:
		return s.cs.Err()
	case s.cs.ID() == 0:
		return errEnded
	}
	return nil
}

// gave notes that the stream works.
func (s *stream) gave() {
	s.r.failures, s.r.patience.failures = 0, 0
	s.r.pace.gave()
}

// reached is the place that the stream has come to without an event.
func (s *stream) reached(b *batch) core.Mark {
	token := s.cs.ResumeToken()
	if token == nil {
		return nil
	}
	s.r.token = slices.Clone(token)
	if t, ok := tokenTime(token); ok && numberOf(t) > s.r.pos.Time {
		s.r.pos = core.Position{Time: numberOf(t)}
	}
	m := b.newMark()
	m.pos, m.token = s.r.pos, s.r.token
	return m
}

// change is what a change event says.
type change struct {
	operation    []byte
	token        bson.Raw
	time         bson.Timestamp
	committed    time.Time
	doc          bson.Raw
	toDB, toColl string
}

// take turns the pending change into an entry. more is false when it doesn't
// fit any more.
func (s *stream) take(ctx context.Context, b *batch) (more bool, err error) {
	c, err := parseChange(s.pending)
	if err != nil {
		return false, err
	}
	switch string(c.operation) {
	case "insert":
		if !b.fits(c.doc) {
			return false, nil
		}
		pos := s.r.advance(c.time)
		if added, err := s.r.add(ctx, b, found{doc: c.doc, token: c.token, committed: c.committed, commit: c.time}, pos); !added {
			return false, err
		}
		s.r.pos, s.r.token = pos, b.marks[len(b.marks)-1].token
		s.pending = nil
		s.gave()
		return true, nil
	case "rename":
		s.replaced = s.replaced || c.toDB == s.r.store.db.Name() && c.toColl == s.r.store.log.Name()
	case "invalidate":
		if len(b.Entries) > 0 {
			return false, nil // first what was read before it
		}
		s.r.token = slices.Clone(c.token)
		if s.replaced {
			return false, errReplaced
		}
		s.r.store.logger.WarnContext(ctx, "the log's collection was dropped or renamed: going on with the next one of its name; "+
			"it needs its indexes, see `outbox indexes`", "cursor", s.r.doc.Name, "collection", s.r.store.log.Name())
		return false, errInvalidated
	}
	s.r.token = slices.Clone(c.token)
	s.pending = nil
	return true, nil
}

// parseChange reads a change event without copying.
func parseChange(raw bson.Raw) (change, error) {
	var c change
	els := walk(raw)
	for els.next() {
		switch v := els.value; string(els.name) {
		case "_id":
			c.token = bson.Raw(v.Value)
		case "operationType":
			c.operation, _ = stringOf(v)
		case "clusterTime":
			c.time.T, c.time.I, _ = v.TimestampOK()
		case "wallTime":
			c.committed, _ = momentOf(v)
		case "fullDocument":
			c.doc = bson.Raw(v.Value)
		case "to":
			c.toDB, c.toColl = namespaceOf(v)
		}
	}
	if els.err != nil {
		return c, fmt.Errorf("reading a change event: %w", els.err)
	}
	if c.committed.IsZero() {
		c.committed = timeOf(c.time)
	}
	return c, nil
}

func namespaceOf(v bson.RawValue) (db, coll string) {
	els := walk(v.Value)
	for els.next() {
		switch text, _ := stringOf(els.value); string(els.name) {
		case "db":
			db = string(text)
		case "coll":
			coll = string(text)
		}
	}
	return db, coll
}
