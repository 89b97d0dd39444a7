package mongo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/gooutbox/outbox/core"
)

// pauseID is the _id of a pause. Pauses are kept beside the jobs, so that one
// change stream tells of both. Its fields are in this order.
type pauseID struct {
	Scope core.PauseScope `bson:"pause"`
	Name  string          `bson:"name"`
}

// storedPause is the stored form of a pause.
type storedPause struct {
	ID pauseID `bson:"_id"`
	// Until is absent where the pause lasts until somebody resumes.
	Until  time.Time `bson:"until"`
	Reason string    `bson:"reason"`
	By     string    `bson:"by"`
	SetAt  time.Time `bson:"set_at"`
}

// anyPause matches the ids of pauses by a range of the _id index.
func anyPause() bson.E {
	return bson.E{Key: "_id", Value: bson.D{
		{Key: "$gte", Value: bson.D{{Key: "pause", Value: ""}}},
		{Key: "$lt", Value: bson.D{{Key: "pause", Value: bson.D{}}}},
	}}
}

var (
	pauseLasts = op("$or", bson.A{
		op("$eq", bson.A{op("$type", "$until"), "missing"}), op("$gt", bson.A{"$until", "$$NOW"}),
	})
	pauseExists = op("$ne", bson.A{op("$type", "$set_at"), "missing"})
)

// Pauses lists what is paused, by scope and name, see core.Queue.
func (s *Store) Pauses(ctx context.Context) ([]core.Pause, error) {
	cur, err := s.jobs.Find(withoutSession(ctx), bson.D{
		anyPause(), {Key: "_id.pause", Value: op("$exists", true)}, {Key: "$expr", Value: pauseLasts},
	}, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}).SetHint(byID))
	if err != nil {
		return nil, fmt.Errorf("listing pauses: %w", err)
	}
	var found []storedPause
	if err := cur.All(ctx, &found); err != nil {
		return nil, fmt.Errorf("listing pauses: %w", err)
	}
	pauses := make([]core.Pause, len(found))
	for i, p := range found {
		pauses[i] = core.Pause{
			PauseTarget: core.PauseTarget{Scope: p.ID.Scope, Name: p.ID.Name}, Until: p.Until, Reason: p.Reason, By: p.By,
		}
	}
	return pauses, nil
}

// Pause puts a pause in force, see core.Queue.
func (s *Store) Pause(ctx context.Context, p core.Pause) error {
	if p.Scope == "" || p.Name == "" || p.For < 0 {
		return errors.New("pausing: name the scope and the target, and no time below zero")
	}
	_, err := s.jobs.UpdateOne(withoutSession(ctx), bson.D{{Key: "_id", Value: pauseID{p.Scope, p.Name}}}, pausing(p),
		options.UpdateOne().SetUpsert(true))
	if err != nil {
		return fmt.Errorf("pausing %s %q: %w", p.Scope, p.Name, err)
	}
	return nil
}

// pausing is the update of a pause: what is in force is neither shortened nor,
// if an operator set it, touched by anything but an operator.
func pausing(p core.Pause) bson.A {
	until := any("$$REMOVE")
	longer := any(pauseHasUntil)
	if p.For > 0 {
		until = fromNow(p.For)
		longer = op("$and", bson.A{pauseHasUntil, op("$gt", bson.A{fromNow(p.For), "$until"})})
	}
	inForce := op("$and", bson.A{pauseExists, pauseLasts})
	replace := []any{op("$not", bson.A{inForce})}
	if p.By == "" {
		replace = append(replace, op("$and", bson.A{longer, op("$eq", bson.A{op("$ifNull", bson.A{"$by", ""}), ""})}))
	} else {
		replace = append(replace, true)
	}
	set := bson.D{
		{Key: "until", Value: op("$cond", bson.A{
			op("$and", bson.A{inForce, op("$not", bson.A{longer})}), op("$ifNull", bson.A{"$until", "$$REMOVE"}), until,
		})},
		{Key: "reason", Value: literal(cutReason(p.Reason))},
		{Key: "by", Value: literal(p.By)},
		{Key: "set_at", Value: "$$NOW"},
	}
	return bson.A{op("$replaceWith", op("$cond", bson.A{
		op("$or", bson.A(replace)), op("$mergeObjects", bson.A{bson.D{{Key: "_id", Value: "$_id"}}, set}), "$$ROOT",
	}))}
}

var pauseHasUntil = op("$ne", bson.A{op("$type", "$until"), "missing"})

// Resume ends a pause, see core.Queue.
func (s *Store) Resume(ctx context.Context, target core.PauseTarget) error {
	_, err := s.jobs.DeleteOne(withoutSession(ctx), bson.D{{Key: "_id", Value: pauseID{target.Scope, target.Name}}})
	if err != nil {
		return fmt.Errorf("resuming %s %q: %w", target.Scope, target.Name, err)
	}
	return nil
}
