package mongo

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/gooutbox/outbox/core"
)

// poll reads what is not marked as published, by seq, in sweeps that each begin
// at the lowest: an event that was committed after a higher one was read is
// found by the next sweep. What this term has returned and not yet marked is
// passed over.
//
// On a replica set a sweep reads in a snapshot; a plain query may show an event
// without one that was committed before it.
type poll struct {
	r *reader
	// begun is when the term began, by this process's clock.
	begun time.Time

	session *mongo.Session
	cursor  *mongo.Cursor
	pending bson.Raw
	// sweep counts the sweeps, got what the running one has returned.
	sweep uint64
	got   int
	// seq is that of the last document that the sweep came upon.
	seq uint64
	// inFlight are the documents that were returned and, as far as is known, not
	// marked.
	ids      idSet
	inFlight map[idHash]sighting
	// state is the scan that a stream would have to begin with, if the cursor is
	// no longer polled one day.
	state *scanState
}

// sighting is the sweep that last saw a document without a mark, and its seq.
type sighting struct {
	sweep, seq uint64
}

// sweepReads is how many times what one read returns a sweep returns at most,
// so that the documents in flight stay few.
const sweepReads = 20

func newPoll(r *reader) *poll {
	// Places of this term are behind all places of earlier ones, which matters
	// for documents that have no seq.
	if n := numberOf(r.doc.Fence); n > r.pos.Time {
		r.pos = core.Position{Time: n}
	}
	return &poll{r: r, begun: time.Now(), inFlight: map[idHash]sighting{}, state: &scanState{First: true}}
}

// fill adds what is there. When nothing is it looks again after the poll
// interval, until the time to wait for events is over.
func (p *poll) fill(ctx context.Context, b *batch) error {
	deadline := time.Now().Add(p.r.store.cfg.ReadWait)
	for {
		ended, err := p.some(ctx, b)
		if err != nil {
			p.reset(ctx)
			return fmt.Errorf("polling the log: %w", err)
		}
		if len(b.Entries) > 0 {
			return nil
		}
		if !ended {
			continue
		}
		wait := min(p.r.store.cfg.PollInterval, time.Until(deadline))
		if wait <= 0 {
			return nil
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// some adds what the running sweep gives. ended tells that it is over.
func (p *poll) some(ctx context.Context, b *batch) (ended bool, err error) {
	for !b.full() {
		if p.pending == nil {
			if p.cursor == nil {
				if err := p.begin(ctx, b); err != nil {
					return false, err
				}
			}
			if p.got >= sweepReads*b.limit.Events && p.cursor.RemainingBatchLength() == 0 {
				p.finish(ctx, false)
				return true, nil
			}
			if err := p.next(ctx, b); err != nil {
				return false, err
			}
			if p.pending == nil {
				p.finish(ctx, true)
				return true, nil
			}
		}
		if !b.fits(p.pending) {
			return false, nil
		}
		if taken, err := p.take(ctx, b); !taken {
			return false, err
		}
	}
	return false, nil
}
