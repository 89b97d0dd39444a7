package mongo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// scan reads the log in a snapshot: first the documents that have a seq, in its
// order, then the foreign ones. Everything that is committed later comes from
// the stream that begins where the snapshot ends.
//
// A snapshot lives for minutes only. One that is gone is followed by a new one,
// which reads on from the last seq, but at least from the time of the first
// snapshot less the margin: what was committed since is not written earlier.
// What this scan has returned already is then left out.
type scan struct {
	r *reader
	// state goes into the marks: how far the scan has come.
	state scanState

	session *mongo.Session
	// snapshot is the time of the session's snapshot.
	snapshot bson.Timestamp
	cursor   *mongo.Cursor
	// part is which of the queries runs; there are len(parts) of them.
	part  int
	parts []part
	// pending is a document that was taken from the driver and not yet returned.
	pending bson.Raw
	// progress tells that the snapshot has given anything.
	progress bool

	returned returned
	foreign  idSet
	// jobsKnown tells that the jobs of all events are loaded, not only of those
	// behind the margin.
	jobsKnown bool
}

// newScan makes a scan that begins, or goes on where an earlier one was cut
// short.
func newScan(r *reader, state scanState) *scan {
	if state.First && state.From.IsZero() {
		state.From = r.doc.From
	}
	return &scan{r: r, state: state}
}

// fill adds what is there. It returns true when nothing is left.
func (s *scan) fill(ctx context.Context, b *batch) (finished bool, err error) {
	for !b.full() {
		if s.pending == nil {
			if s.session == nil {
				if err := s.begin(ctx); err != nil {
					return false, s.failed(ctx, err)
				}
			}
			if s.part == len(s.parts) {
				return true, nil
			}
			if err := s.next(ctx, b); err != nil {
				if err := s.failed(ctx, err); err != nil {
					return false, err
				}
			}
			if s.pending == nil {
				continue
			}
		}
		if !b.fits(s.pending) {
			return false, nil
		}
		if taken, err := s.take(ctx, b); !taken {
			return false, err
		}
	}
	return false, nil
}

// failed forgets the snapshot. It returns nil where a new one is to be taken
// without asking the caller.
func (s *scan) failed(ctx context.Context, err error) error {
	again := s.progress && snapshotEnded(err) && ctx.Err() == nil
	s.reset(ctx)
	if again {
		return nil
	}
	if hasCode(err, codeSnapshotUnavailable) {
		if unfit := s.r.store.CheckLog(ctx); errors.Is(unfit, ErrUnfitLog) {
			err = fmt.Errorf("%w (%w)", unfit, err)
		}
	}
	return fmt.Errorf("scanning the log: %w", err)
}

// reset frees what the server holds for the scan.
func (s *scan) reset(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if s.cursor != nil {
		_ = s.cursor.Close(ctx) // it ends by itself in any case
	}
	if s.session != nil {
		s.session.EndSession(ctx)
	}
	s.cursor, s.session, s.pending, s.progress = nil, nil, nil, false
}

// begin takes a snapshot.
func (s *scan) begin(ctx context.Context) error {
	session, err := s.r.store.client.StartSession(options.Session().SetSnapshot(true))
	if err != nil {
		return err
	}
	s.session = session
	// The cursor's own document exists, which the log may not: reading it fixes
	// the time of the snapshot.
	err = s.call(ctx, func(ctx context.Context) error {
		err := s.r.store.cursors.FindOne(ctx, bson.D{{Key: "_id", Value: s.r.doc.Name}}).Err()
		if errors.Is(err, mongo.ErrNoDocuments) {
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	s.snapshot = session.SnapshotTime()
	if s.snapshot.IsZero() {
		return errors.New("the server named no time for its snapshot")
	}
	if s.state.At.IsZero() {
		s.state.At = s.snapshot
	}
	s.part, s.parts = 0, s.plan()
	s.returned.rewind()
	return nil
}

// call runs fn in the scan's session.
func (s *scan) call(ctx context.Context, fn func(ctx context.Context) error) error {
	var err error
	unanswered := s.r.patience.call(ctx, func(ctx context.Context) {
		err = fn(mongo.NewSessionContext(ctx, s.session))
	})
	if err != nil && unanswered != nil {
		return unanswered
	}
	return err
}

// next takes one document from the driver. pending stays nil at the end of a
// part.
func (s *scan) next(ctx context.Context, b *batch) error {
	size := s.r.mean.batchSize(b.limit)
	if s.cursor == nil {
		err := s.call(ctx, func(ctx context.Context) (err error) {
			s.cursor, err = s.r.store.log.Find(ctx, s.parts[s.part].filter, options.Find().
				SetSort(s.r.store.scanOrder()).SetAllowDiskUse(true).SetBatchSize(size))
			return err
		})
		if err != nil {
			return err
		}
	}
	got := false
	advance := func(ctx context.Context) error {
		got = s.cursor.Next(ctx)
		return s.cursor.Err()
	}
	var err error
	if s.cursor.RemainingBatchLength() > 0 {
		err = advance(ctx)
	} else {
		s.cursor.SetBatchSize(size)
		err = s.call(ctx, advance)
	}
	switch {
	case err != nil:
		return err
	case !got:
		err := s.cursor.Close(ctx)
		s.cursor = nil
		s.part++
		return err
	}
	s.r.patience.failures = 0
	s.progress = true
	s.pending = s.cursor.Current
	b.expect = s.cursor.RemainingBatchLength()
	s.r.mean.add(len(s.pending))
	return nil
}

// take turns the pending document into an entry, unless this scan has returned
// it already. taken is false, and the document still pending, where it doesn't
// fit and on an error.
func (s *scan) take(ctx context.Context, b *batch) (taken bool, err error) {
	state, twice := s.place(s.pending)
	if !twice {
		if err := s.knowJobs(ctx); err != nil {
			return false, err
		}
		f := found{doc: s.pending, scan: b.newState(state)}
		if !s.parts[s.part].foreign {
			f.committed = timeOf(state.Seq)
		}
		pos := s.r.advance(s.snapshot)
		if added, err := s.r.add(ctx, b, f, pos); !added {
			return false, err
		}
		s.r.pos = pos
		s.returnedNow(state)
	}
	s.pending = nil
	return true, nil
}

// knowJobs loads the jobs of all events before the first one is returned that
// may be older than the margin.
func (s *scan) knowJobs(ctx context.Context) error {
	old := s.parts[s.part].foreign || s.state.First
	if s.jobsKnown || !old {
		return nil
	}
	if err := s.r.recovering(ctx, bson.Timestamp{}); err != nil {
		return err
	}
	s.jobsKnown = true
	return nil
}
