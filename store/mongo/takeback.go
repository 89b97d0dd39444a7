package mongo

import (
	"context"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/gooutbox/outbox/core"
)

// takeBackLimit is TakeBackRequest.Limit where none is given.
const takeBackLimit = 1000

// TakeBack ends leases that ran out, see core.Queue: those that ended longest
// ago first. It takes one round trip where there are none. It may run in several
// processes at once, and beside the holders: what was settled or extended
// meanwhile is left as it is.
func (s *Store) TakeBack(ctx context.Context, req core.TakeBackRequest) (core.TakeBackResult, error) {
	result, err := s.takeBack(withoutSession(ctx), req)
	if err != nil {
		return result, fmt.Errorf("taking jobs back: %w", err)
	}
	return result, nil
}

func (s *Store) takeBack(ctx context.Context, req core.TakeBackRequest) (core.TakeBackResult, error) {
	req.MaxRedeliveries = orDefault(req.MaxRedeliveries, core.DefaultMaxRedeliveries)
	if req.Limit <= 0 {
		req.Limit = takeBackLimit
	}
	var result core.TakeBackResult
	overdue, err := s.overdue(ctx, req)
	if err != nil || len(overdue) == 0 {
		return result, err
	}
	// What Reservations can't tell is left; the others are taken back.
	sent, asked := mayBeSent(ctx, req, overdue)
	var ready []lapse
	crashed, unknown := map[bool][]lapse{}, map[bool][]lapse{} // by parked
	for _, l := range overdue {
		maySent, known := sent[l.ID.String()]
		switch {
		case slices.Contains(req.NoRepeat, l.Sink) && !known:
		case maySent:
			unknown[l.parked()] = append(unknown[l.parked()], l)
		case l.Redeliveries >= req.MaxRedeliveries:
			crashed[l.parked()] = append(crashed[l.parked()], l)
		default:
			ready = append(ready, l)
		}
	}
	end := func(count *int, lapses []lapse, as core.JobState, set bson.D) {
		if err != nil || len(lapses) == 0 {
			return
		}
		var n int
		n, err = s.endLeases(ctx, lapses, set)
		*count += n
		if n > 0 && as.Final() && req.Ended != nil {
			for _, l := range lapses {
				req.Ended(jobName(l.ID), as)
			}
		}
	}
	end(&result.Ready, ready, core.JobReady, append(released("$$NOW"),
		bson.E{Key: "redelivered", Value: true},
		bson.E{Key: "redeliveries", Value: op("$add", bson.A{countIn("redeliveries"), 1})}))
	for parked, lapses := range crashed {
		set := s.failed(parked)
		if parked {
			set = append(set, bson.E{Key: "open", Value: "$hold"}) // not there where it is not to hold
		}
		end(&result.Crashed, lapses, core.JobFailed, append(set, becauseOf(core.CodeCrashed, op("$concat", bson.A{
			"the lease ran out ", op("$toString", op("$add", bson.A{countIn("redeliveries"), 1})), " times",
		}))))
	}
	for parked, lapses := range unknown {
		end(&result.Unknown, lapses, core.JobUnknown, append(s.unknown(parked),
			becauseOf(core.CodeUnknown, "the lease ran out after the delivery may have begun")))
	}
	if err == nil {
		err = asked
	}
	return result, err
}

func becauseOf(code string, reason any) bson.E {
	return bson.E{Key: "failure", Value: bson.D{{Key: "code", Value: code}, {Key: "reason", Value: reason}, {Key: "at", Value: "$$NOW"}}}
}

// lapse is a lease that ran out.
type lapse struct {
	ID           bson.RawValue
	Sink, Cursor string
	Token        bson.RawValue
	Redeliveries int
}

func (l lapse) parked() bool { return l.Cursor != "" }

// ranOut matches a lease that ended more than the grace ago.
func ranOut() bson.E {
	return bson.E{Key: "$expr", Value: op("$lt", bson.A{"$lease_until", fromNow(-core.TakeBackGrace)})}
}

// overdue are the leases that ended longest ago.
func (s *Store) overdue(ctx context.Context, req core.TakeBackRequest) ([]lapse, error) {
	filter := bson.D{{Key: "state", Value: core.JobActive}, ranOut()}
	if req.Sinks != nil {
		filter = append(filter, bson.E{Key: "$or", Value: bson.A{
			bson.D{{Key: "sink", Value: op("$in", req.Sinks)}},
			bson.D{{Key: "cursor", Value: op("$in", append([]string{}, req.Cursors...))}},
		}})
	}
	cur, err := s.queue.latest.Find(ctx, filter,
		options.Find().SetSort(bson.D{{Key: "lease_until", Value: 1}}).SetLimit(int64(req.Limit)).SetBatchSize(batchSize(req.Limit)).
			SetProjection(bson.D{
				{Key: "sink", Value: 1}, {Key: "cursor", Value: 1}, {Key: "token", Value: 1}, {Key: "redeliveries", Value: 1},
			}))
	if err != nil {
		return nil, fmt.Errorf("looking for leases that ran out: %w", err)
	}
	var docs []bson.Raw
	if err := cur.All(ctx, &docs); err != nil {
		return nil, fmt.Errorf("looking for leases that ran out: %w", err)
	}
	found := make([]lapse, len(docs))
	for i, raw := range docs {
		l := lapse{ID: raw.Lookup("_id"), Token: raw.Lookup("token"), Redeliveries: count32(raw.Lookup("redeliveries"), 0)}
		if l.Token.IsZero() { // written by hand: none is what it is found by
			l.Token = bson.RawValue{Type: bson.TypeNull}
		}
		l.Sink = textOrNone(raw.Lookup("sink"))
		l.Cursor = textOrNone(raw.Lookup("cursor"))
		found[i] = l
	}
	return found, nil
}

// mayBeSent tells of each job of a NoRepeat sink whether it may have been sent,
// and of none where it can't be told.
func mayBeSent(ctx context.Context, req core.TakeBackRequest, overdue []lapse) (map[string]bool, error) {
	var names []string
	var ids []string
	for _, l := range overdue {
		if slices.Contains(req.NoRepeat, l.Sink) {
			ids, names = append(ids, l.ID.String()), append(names, jobName(l.ID))
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	var reserved map[string]bool
	if req.Reservations != nil {
		var err error
		if reserved, err = req.Reservations.Reserved(ctx, names); err != nil {
			return nil, fmt.Errorf("asking what was sent: %w", err)
		}
	}
	sent := make(map[string]bool, len(ids))
	for i, id := range ids {
		sent[id] = req.Reservations == nil || reserved[names[i]]
	}
	return sent, nil
}

// endLeases changes jobs whose lease is still one of those that ran out, and
// takes its token away, so that its holder learns that it is lost.
func (s *Store) endLeases(ctx context.Context, lapses []lapse, set bson.D) (int, error) {
	ids, tokens := make(bson.A, len(lapses)), make(bson.A, len(lapses))
	for i, l := range lapses {
		ids[i], tokens[i] = l.ID, l.Token
	}
	// A token of another job in the list is one that ran out as well, and whether
	// this job's lease did is asked again.
	res, err := s.jobs.UpdateMany(ctx, bson.D{
		{Key: "_id", Value: op("$in", ids)}, {Key: "state", Value: core.JobActive}, {Key: "token", Value: op("$in", tokens)}, ranOut(),
	}, bson.A{op("$set", append(set, bson.E{Key: "token", Value: "$$REMOVE"}))}, options.UpdateMany().SetHint(byID))
	if err != nil {
		return 0, err
	}
	s.queue.forget()
	return int(res.ModifiedCount), nil
}
