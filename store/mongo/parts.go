package mongo

import (
	"math"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// part is one of the queries that make up a scan. Together they find each
// document once, whatever types its fields have, and each follows the index.
type part struct {
	filter bson.D
	// foreign documents have no seq by the server's clock; dated ones have a
	// date that says when they were written, by the producer's clock.
	foreign, dated bool
}

// anyTimestamp and anyDate match every value of these types and no other.
var (
	anyTimestamp = op("$gte", bson.Timestamp{})
	anyDate      = op("$gte", bson.DateTime(math.MinInt64))
)

// scanOrder is the index that scans follow.
func (s *Store) scanOrder() bson.D {
	return bson.D{{Key: s.cfg.Fields.Seq, Value: 1}, {Key: s.cfg.Fields.OccurredAt, Value: 1}, {Key: "_id", Value: 1}}
}

// plan says what the next snapshot has to read, given how far the scan is.
//
// A foreign document can't be told by time unless it has a date, so that the
// others are all read again. A date goes back by the clock slack too. One whose
// date is older, since it tells when the thing happened, is found by an ObjectId
// that is not.
func (s *scan) plan() []part {
	fields := s.r.store.cfg.Fields
	seq, date, created := s.bounds()
	where := func(seqIs, dateIs any) bson.D {
		filter := bson.D{{Key: fields.Seq, Value: seqIs}}
		if dateIs != nil {
			filter = append(filter, bson.E{Key: fields.OccurredAt, Value: dateIs})
		}
		if s.state.First && !s.state.Published {
			filter = append(filter, bson.E{Key: fields.PublishedAt, Value: nil})
		}
		return filter
	}
	noSeq := op("$eq", nil)
	otherSeq := bson.D{{Key: "$not", Value: anyTimestamp}, {Key: "$ne", Value: nil}}
	young, undated := op("$gte", date), op("$not", anyDate)
	parts := []part{
		{filter: where(op("$gte", seq), nil)},
		{filter: where(noSeq, young), foreign: true, dated: true},
		{filter: where(noSeq, undated), foreign: true},
		{filter: where(otherSeq, young), foreign: true},
		{filter: where(otherSeq, undated), foreign: true},
	}
	if date > math.MinInt64 {
		old, young := op("$lt", date), bson.E{Key: "_id", Value: op("$gte", bson.NewObjectIDFromTimestamp(created.Time()))}
		parts = append(parts,
			part{filter: append(where(noSeq, old), young), foreign: true},
			part{filter: append(where(otherSeq, old), young), foreign: true})
	}
	return parts
}

// bounds are the lowest seq, and the lowest date of a foreign document, that the
// next snapshot has to read. A foreign document with a lower date is to be read
// if its ObjectId was created at or after the third.
func (s *scan) bounds() (seq bson.Timestamp, date, created bson.DateTime) {
	margin, slack := s.r.margin, s.r.store.cfg.ClockSlack
	seq = earlier(s.state.Seq, before(s.state.At, margin))
	if seq.Before(s.state.From) {
		seq = s.state.From
	}

	lowest := bson.DateTime(math.MinInt64)
	if !s.state.From.IsZero() {
		lowest = dateOf(s.state.From)
		if !s.state.First {
			lowest -= bson.DateTime(slack.Milliseconds())
		}
	}
	// What was inserted since the first snapshot is not older than this.
	open := dateOf(before(s.state.At, margin)) - bson.DateTime(slack.Milliseconds())
	date, created = lowest, lowest
	if s.state.From.IsZero() {
		created = open
	}
	if done, ok := s.state.OccurredAt.DateTimeOK(); ok {
		date = max(lowest, min(bson.DateTime(done), open))
	}
	return seq, date, max(0, created)
}

// dateOf is the second of a server's timestamp as a date.
func dateOf(t bson.Timestamp) bson.DateTime { return bson.DateTime(int64(t.T) * 1000) }

// place is how far the scan has come once doc is settled, and whether this scan
// has returned doc before.
func (s *scan) place(doc bson.Raw) (state scanState, twice bool) {
	state = s.state
	p, id := s.parts[s.part], idOf(doc)
	if !p.foreign {
		if t, i, ok := doc.Lookup(s.r.store.cfg.Fields.Seq).TimestampOK(); ok {
			state.Seq = bson.Timestamp{T: t, I: i}
		}
		return state, s.returned.has(numberOf(state.Seq), id)
	}
	if s.foreign.has(id) {
		return state, true
	}
	if p.dated {
		state.OccurredAt, state.ID = copyOf(doc.Lookup(s.r.store.cfg.Fields.OccurredAt)), copyOf(noteOf(id))
	}
	return state, false
}

// returnedNow notes what a later snapshot would give again.
func (s *scan) returnedNow(state scanState) {
	s.state = state
	id := idOf(s.pending)
	switch {
	case s.parts[s.part].foreign:
		s.foreign.add(id)
	case !state.Seq.Before(before(state.At, s.r.margin)):
		s.returned.add(numberOf(state.Seq), id)
	}
}

func copyOf(v bson.RawValue) bson.RawValue {
	return bson.RawValue{Type: v.Type, Value: append([]byte(nil), v.Value...)}
}
