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

// storedAct is the stored form of what an operator did.
type storedAct struct {
	At     time.Time `bson:"at"`
	By     string    `bson:"by"`
	Reason string    `bson:"reason"`
	What   string    `bson:"what"`
	Target string    `bson:"target"`
	// Count is absent while the act is under way, and stays so if it was cut
	// short.
	Count int64 `bson:"count"`
}

// acting does something and records it. The record is written before, so that
// nothing is done without one, and completed afterwards.
func (s *Store) acting(ctx context.Context, act core.Act, what, target string, do func() (int64, error)) (int64, error) {
	id := bson.NewObjectID()
	record := bson.D{
		{Key: "at", Value: "$$NOW"},
		{Key: "by", Value: literal(act.By)},
		{Key: "reason", Value: literal(cutReason(act.Reason))},
		{Key: "what", Value: literal(what)},
		{Key: "target", Value: literal(target)},
	}
	if _, err := s.acts.UpdateByID(ctx, id, bson.A{op("$set", record)}, options.UpdateOne().SetUpsert(true)); err != nil {
		return 0, fmt.Errorf("recording who does it: %w", err)
	}
	n, err := do()
	if n == 0 && err != nil {
		_, _ = s.acts.DeleteOne(context.WithoutCancel(ctx), bson.D{{Key: "_id", Value: id}}) // nothing was done
		return 0, err
	}
	_, recordErr := s.acts.UpdateByID(context.WithoutCancel(ctx), id, bson.D{{Key: "$set", Value: bson.D{{Key: "count", Value: n}}}})
	if err == nil && recordErr != nil {
		err = fmt.Errorf("recording what was done: %w", recordErr)
	}
	return n, err
}

// checkAct tells what is missing of an act, or that there is nothing to act on.
func (s *Store) checkAct(ctx context.Context, act core.Act) error {
	if act.By == "" {
		return errors.New("say who does it")
	}
	return s.exists(ctx)
}

// Acts lists what operators did, newest first, see core.Admin.
func (s *Store) Acts(ctx context.Context, limit int) ([]core.ActRecord, error) {
	if limit <= 0 {
		return nil, errors.New("listing acts: say how many at most")
	}
	if err := s.exists(ctx); err != nil {
		return nil, fmt.Errorf("listing acts: %w", err)
	}
	cur, err := s.acts.Find(withoutSession(ctx), bson.D{},
		options.Find().SetSort(bson.D{{Key: "at", Value: -1}, {Key: "_id", Value: -1}}).SetLimit(int64(limit)))
	if err != nil {
		return nil, fmt.Errorf("listing acts: %w", err)
	}
	var found []storedAct
	if err := cur.All(ctx, &found); err != nil {
		return nil, fmt.Errorf("listing acts: %w", err)
	}
	acts := make([]core.ActRecord, len(found))
	for i, a := range found {
		acts[i] = core.ActRecord(a)
	}
	return acts, nil
}

// PauseBy is Pause as an operator's act, see core.Admin.
func (s *Store) PauseBy(ctx context.Context, p core.Pause, act core.Act) error {
	p.By = act.By
	if p.Reason == "" {
		p.Reason = act.Reason
	}
	return s.actOn(ctx, act, "pause", string(p.Scope)+" "+p.Name, func(ctx context.Context) error { return s.Pause(ctx, p) })
}

// ResumeBy is Resume as an operator's act, see core.Admin.
func (s *Store) ResumeBy(ctx context.Context, target core.PauseTarget, act core.Act) error {
	return s.actOn(ctx, act, "resume", string(target.Scope)+" "+target.Name,
		func(ctx context.Context) error { return s.Resume(ctx, target) })
}

// ForgetCursor removes the document of a cursor that no longer runs, see
// core.Admin. Its jobs stay. Run again, it is a new cursor.
func (s *Store) ForgetCursor(ctx context.Context, name string, act core.Act) error {
	return s.actOn(ctx, act, "forget cursor", name, func(ctx context.Context) error { return s.forgetCursor(ctx, name) })
}

func (s *Store) forgetCursor(ctx context.Context, name string) error {
	id := bson.E{Key: "_id", Value: name}
	res, err := s.cursors.DeleteOne(ctx, bson.D{id, {Key: "$expr", Value: op("$lte", bson.A{"$lease_until", "$$NOW"})}})
	if err != nil || res.DeletedCount > 0 {
		return err
	}
	var held struct {
		Owner string `bson:"owner"`
	}
	found, err := s.cursors.Find(ctx, bson.D{id})
	if err != nil {
		return err
	}
	defer found.Close(ctx) //nolint:errcheck // nothing was written
	if !found.Next(ctx) {
		return found.Err()
	}
	if err := found.Decode(&held); err != nil {
		return err
	}
	return &core.HeldError{Cursor: name, Owner: held.Owner}
}

// actOn does one thing and records it.
func (s *Store) actOn(ctx context.Context, act core.Act, what, target string, do func(context.Context) error) error {
	ctx = withoutSession(ctx)
	err := s.checkAct(ctx, act)
	if err == nil && !act.DryRun {
		_, err = s.acting(ctx, act, what, target, func() (int64, error) {
			if err := do(ctx); err != nil {
				return 0, err
			}
			return 1, nil
		})
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", what, target, err)
	}
	return nil
}
