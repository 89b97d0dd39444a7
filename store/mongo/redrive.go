package mongo

import (
	"context"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/gooutbox/outbox/core"
)

// actRange is how many jobs one write of an act covers.
const actRange = 1000

// jobOrder is the order in which jobs came: those of cursors by their events'
// positions.
var jobOrder = bson.D{
	{Key: "seq", Value: 1}, {Key: "position.time", Value: 1}, {Key: "position.ordinal", Value: 1}, {Key: "_id", Value: 1},
}

// retriable matches jobs of which enough is kept.
var retriable = bson.E{Key: "$or", Value: bson.A{
	bson.D{{Key: "payload", Value: op("$exists", true)}}, bson.D{{Key: "cursor", Value: op("$exists", true)}},
}}

// ready is an expression that tells jobs that wait from final ones.
var ready = op("$eq", bson.A{"$state", core.JobReady})

// unlessReady is a value that only jobs that were final get.
func unlessReady(field string, value any) any { return op("$cond", bson.A{ready, "$" + field, value}) }

// redrivable narrows a query down to the jobs that Retry changes.
func redrivable(query bson.D, f core.JobFilter) bson.D {
	final := bson.D{{Key: "state", Value: op("$in", bson.A{core.JobFailed, core.JobUnknown})}, retriable}
	if len(f.IDs) == 0 && f.State != core.JobReady {
		return bson.D{{Key: "$and", Value: bson.A{query, final}}}
	}
	waiting := bson.D{
		{Key: "state", Value: core.JobReady}, {Key: "$expr", Value: op("$gt", bson.A{"$available_at", "$$NOW"})},
	}
	return bson.D{{Key: "$and", Value: bson.A{query, op("$or", bson.A{final, waiting})}}}
}

// Retry makes failed and unknown jobs ready again, and those due that wait where
// they are asked for, see core.Admin. Jobs whose payload was not retained are
// left. It writes in ranges, in the order in which the jobs came; one that is cut
// short has done a part, and may be repeated.
func (s *Store) Retry(ctx context.Context, filter core.JobFilter, act core.Act) (int64, error) {
	n, err := s.actOnJobs(withoutSession(ctx), "retry", filter, act, func(query bson.D) bson.D {
		return redrivable(query, filter)
	}, func(ctx context.Context, query bson.D, ids []bson.RawValue, first, total int) (int64, error) {
		offsets := make([]any, len(ids))
		for i := range ids {
			offsets[i] = act.Spread.Milliseconds() * int64(first+i) / int64(total)
		}
		g := &group{ids: anyOf(ids)}
		due := op("$add", bson.A{"$$NOW", g.each(offsets)})
		set := append(released(op("$cond", bson.A{ready, op("$min", bson.A{"$available_at", due}), due})),
			bson.E{Key: "attempts", Value: unlessReady("attempts", 0)},
			bson.E{Key: "redeliveries", Value: unlessReady("redeliveries", 0)},
			bson.E{Key: "redelivered", Value: op("$or", bson.A{
				"$redelivered", op("$eq", bson.A{"$state", core.JobUnknown}), op("$eq", bson.A{"$failure.code", core.CodeCrashed}),
			})},
			bson.E{Key: "redriven", Value: unlessReady("redriven", true)},
			bson.E{Key: "token", Value: unlessReady("token", "$$REMOVE")},
			bson.E{Key: "settled_token", Value: unlessReady("settled_token", "$$REMOVE")},
			bson.E{Key: "open", Value: ofCursor(true)},
			bson.E{Key: "bell", Value: ofCursor("$sink")},
		)
		for _, name := range []string{"not_before", "finished_at", "expire_at"} {
			set = append(set, bson.E{Key: name, Value: "$$REMOVE"})
		}
		res, err := s.jobs.UpdateMany(ctx, byIDs(ids, query), bson.A{op("$set", set)}, options.UpdateMany().SetHint(byID))
		if err != nil {
			return 0, err
		}
		return res.ModifiedCount, nil
	})
	s.queue.forget()
	return n, err
}

// Discard removes jobs that are not active, see core.Admin. One from a cursor
// ends as completed instead, with "discarded" as its result, and is kept for
// ever: its event may be read again, and would be sent, were there no job.
func (s *Store) Discard(ctx context.Context, filter core.JobFilter, act core.Act) (int64, error) {
	return s.actOnJobs(withoutSession(ctx), "discard", filter, act, func(query bson.D) bson.D {
		return append(among(query, core.JobReady, core.JobCompleted, core.JobFailed, core.JobUnknown),
			bson.E{Key: "discarded", Value: op("$exists", false)})
	}, func(ctx context.Context, query bson.D, ids []bson.RawValue, _, _ int) (int64, error) {
		set := append(ended(core.JobCompleted, 0), bson.E{Key: "expire_at", Value: "$$REMOVE"},
			bson.E{Key: "result", Value: "discarded"}, bson.E{Key: "discarded", Value: true}, bson.E{Key: "bell", Value: "$sink"}, notOpen)
		set = append(set, withoutPayload...)
		kept, err := s.jobs.UpdateMany(ctx, append(byIDs(ids, query), bson.E{Key: "cursor", Value: op("$exists", true)}),
			bson.A{op("$set", set)}, options.UpdateMany().SetHint(byID))
		if err != nil {
			return 0, err
		}
		gone, err := s.jobs.DeleteMany(ctx, append(byIDs(ids, query), bson.E{Key: "cursor", Value: op("$exists", false)}),
			options.DeleteMany().SetHint(byID))
		if err != nil {
			return kept.ModifiedCount, err
		}
		return kept.ModifiedCount + gone.DeletedCount, nil
	})
}

// ofCursor is a field that only jobs of a cursor have.
func ofCursor(value any) bson.D {
	return op("$cond", bson.A{op("$eq", bson.A{op("$type", "$cursor"), "missing"}), "$$REMOVE", value})
}

func byIDs(ids []bson.RawValue, query bson.D) bson.D {
	return append(bson.D{{Key: "_id", Value: op("$in", ids)}}, query...)
}

func anyOf(ids []bson.RawValue) bson.A {
	all := make(bson.A, len(ids))
	for i, id := range ids {
		all[i] = id
	}
	return all
}

// actOnJobs does something to jobs that a filter selects, range by range, and
// records it. do is told the number of the first job of its range, and of all.
func (s *Store) actOnJobs(ctx context.Context, what string, filter core.JobFilter, act core.Act, narrow func(bson.D) bson.D,
	do func(ctx context.Context, query bson.D, ids []bson.RawValue, first, total int) (int64, error),
) (int64, error) {
	n, err := s.actOnSelected(ctx, what, filter, act, narrow, do)
	if err != nil {
		return n, fmt.Errorf("%s of jobs: %w", what, err)
	}
	return n, nil
}

func (s *Store) actOnSelected(ctx context.Context, what string, filter core.JobFilter, act core.Act, narrow func(bson.D) bson.D,
	do func(ctx context.Context, query bson.D, ids []bson.RawValue, first, total int) (int64, error),
) (int64, error) {
	if err := s.checkAct(ctx, act); err != nil {
		return 0, err
	}
	query, ok := s.selecting(filter)
	if !ok {
		return 0, nil
	}
	query = narrow(query)
	ids, err := s.inOrder(ctx, query)
	if err != nil || len(ids) == 0 || act.DryRun {
		return int64(len(ids)), err
	}
	return s.acting(ctx, act, what, describe(filter), func() (done int64, err error) {
		first := 0
		for some := range slices.Chunk(ids, actRange) {
			n, err := do(ctx, query, some, first, len(ids))
			done += n
			if err != nil {
				return done, err
			}
			first += len(some)
		}
		return done, nil
	})
}

// inOrder are the ids of the jobs that match, in the order in which they came.
func (s *Store) inOrder(ctx context.Context, query bson.D) ([]bson.RawValue, error) {
	cur, err := s.jobs.Find(ctx, query, options.Find().SetSort(jobOrder).SetAllowDiskUse(true).SetProjection(bson.D{{Key: "_id", Value: 1}}))
	if err != nil {
		return nil, err
	}
	defer cur.Close(ctx) //nolint:errcheck // nothing was written
	var ids []bson.RawValue
	for cur.Next(ctx) {
		ids = append(ids, copyOf(cur.Current.Lookup("_id")))
	}
	return ids, cur.Err()
}
