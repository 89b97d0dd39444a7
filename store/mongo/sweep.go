package mongo

import (
	"context"
	"math"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/gooutbox/outbox/core"
)

// clockLead is how far a seq may be ahead of the time since the cursor was
// acquired, where no snapshot tells what time it is.
const clockLead = time.Hour

// begin starts a sweep.
func (p *poll) begin(ctx context.Context, b *batch) error {
	d, err := p.r.store.deployment(ctx)
	if err != nil {
		return err
	}
	if d.set {
		if p.session, err = p.r.store.client.StartSession(options.Session().SetSnapshot(true)); err != nil {
			return err
		}
	}
	opts := options.Find().SetSort(p.r.store.scanOrder()).SetAllowDiskUse(true).SetBatchSize(p.r.mean.batchSize(b.limit))
	err = p.call(ctx, func(ctx context.Context) (err error) {
		p.cursor, err = p.r.store.log.Find(ctx, p.filter(), opts)
		return err
	})
	if err != nil {
		return err
	}
	p.sweep++
	p.got, p.seq = 0, 0
	return nil
}

// filter matches what no mark says is published, and what was not written
// before the cursor's beginning.
func (p *poll) filter() bson.D {
	fields, from := p.r.store.cfg.Fields, p.r.doc.From
	filter := bson.D{{Key: fields.PublishedAt, Value: nil}}
	if from.IsZero() {
		return filter
	}
	return append(filter, bson.E{Key: "$nor", Value: bson.A{
		bson.D{{Key: fields.Seq, Value: op("$lt", from)}},
		bson.D{{Key: fields.Seq, Value: op("$not", anyTimestamp)}, {Key: fields.OccurredAt, Value: op("$lt", dateOf(from))}},
	}})
}

// call runs fn in the sweep's session, if it has one.
func (p *poll) call(ctx context.Context, fn func(ctx context.Context) error) error {
	var err error
	unanswered := p.r.patience.call(ctx, func(ctx context.Context) {
		if p.session != nil {
			ctx = mongo.NewSessionContext(ctx, p.session)
		}
		err = fn(ctx)
	})
	if err != nil && unanswered != nil {
		return unanswered
	}
	return err
}

// next takes one document from the driver. pending stays nil at the end.
func (p *poll) next(ctx context.Context, b *batch) error {
	got := false
	advance := func(ctx context.Context) error {
		got = p.cursor.Next(ctx)
		return p.cursor.Err()
	}
	var err error
	if p.cursor.RemainingBatchLength() > 0 {
		err = advance(ctx)
	} else {
		p.cursor.SetBatchSize(p.r.mean.batchSize(b.limit))
		err = p.call(ctx, advance)
	}
	if err != nil {
		return err
	}
	p.r.patience.failures = 0
	if got {
		p.pending = p.cursor.Current
		b.expect = p.cursor.RemainingBatchLength()
		p.r.mean.add(len(p.pending))
	}
	return nil
}

// take turns the pending document into an entry, unless it is in flight. taken
// is false, and the document still pending, where it doesn't fit and on an
// error.
func (p *poll) take(ctx context.Context, b *batch) (taken bool, err error) {
	seq, committed := p.order(p.pending)
	id := p.ids.hash(idOf(p.pending))
	p.seq = seq
	if _, known := p.inFlight[id]; !known {
		pos := p.place(seq)
		if added, err := p.r.add(ctx, b, found{doc: p.pending, scan: p.state, committed: committed}, pos); !added {
			return false, err
		}
		p.r.pos = pos
		p.got++
	}
	p.inFlight[id] = sighting{sweep: p.sweep, seq: seq}
	p.pending = nil
	return true, nil
}

// order is where a document stands in a sweep: those whose seq is no timestamp
// come before or after all others. committed is zero for these.
func (p *poll) order(doc bson.Raw) (seq uint64, committed time.Time) {
	v := doc.Lookup(p.r.store.cfg.Fields.Seq)
	switch t, i, ok := v.TimestampOK(); {
	case ok:
		ts := bson.Timestamp{T: t, I: i}
		return numberOf(ts), timeOf(ts)
	case v.Type == bson.TypeRegex, v.Type == bson.TypeDBPointer, v.Type == bson.TypeJavaScript,
		v.Type == bson.TypeCodeWithScope, v.Type == bson.TypeMaxKey:
		return math.MaxUint64, time.Time{}
	}
	return 0, time.Time{}
}

// place is the position of a document: its seq if that is later than all before
// it, else the next running number. A seq that lies in the future was not made
// by the server.
func (p *poll) place(seq uint64) core.Position {
	var now bson.Timestamp
	if p.session != nil {
		now = p.session.SnapshotTime()
	} else {
		now = p.r.doc.Fence
		now.T += uint32((time.Since(p.begun) + clockLead) / time.Second) //nolint:gosec // until 2106
	}
	if seq > numberOf(now) {
		seq = 0
	}
	return p.r.advance(timestampOf(seq))
}

// finish ends a sweep. Documents in flight that it passed and didn't see are
// marked.
func (p *poll) finish(ctx context.Context, complete bool) {
	for id, seen := range p.inFlight {
		if seen.sweep < p.sweep && (complete || seen.seq < p.seq) {
			delete(p.inFlight, id)
		}
	}
	p.reset(ctx)
}

// reset frees what the server holds for the sweep.
func (p *poll) reset(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if p.cursor != nil {
		_ = p.cursor.Close(ctx) // it ends by itself in any case
	}
	if p.session != nil {
		p.session.EndSession(ctx)
	}
	p.cursor, p.session, p.pending = nil, nil, nil
}
