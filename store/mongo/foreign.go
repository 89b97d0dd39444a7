package mongo

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/gooutbox/outbox/internal/crash"
)

// foreignSeen are events without a seq that were past their retention when an
// earlier Clean saw them. Their own times are the producer's word and tell
// nothing about whether they were delivered; that the log held them at a
// cluster time does, since a cursor reads in commit order: once every cursor's
// position is later, they were.
type foreignSeen struct {
	at  bson.Timestamp
	ids []bson.RawValue
}

// foreign removes events without a seq.
func (c *cleaning) foreign(ctx context.Context) error {
	s := c.store
	if c.poll {
		for {
			seen, err := c.oldForeign(ctx)
			if err != nil || len(seen.ids) == 0 {
				return err
			}
			if err := c.removeForeign(ctx, seen.ids); err != nil {
				return err
			}
		}
	}
	s.mu.Lock()
	seen := s.foreign
	s.mu.Unlock()
	if len(seen.ids) > 0 {
		for _, doc := range c.cursors {
			if doc.Scan != nil || !doc.Position.Time.After(seen.at) {
				return nil // not past them: look again next time
			}
		}
		if err := c.removeForeign(ctx, seen.ids); err != nil {
			return err
		}
	}
	if len(c.cursors) == 0 {
		return nil
	}
	seen, err := c.oldForeign(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.foreign = seen
	s.mu.Unlock()
	return nil
}

// oldForeign finds events without a seq that are past their retention.
func (c *cleaning) oldForeign(ctx context.Context) (foreignSeen, error) {
	f := &c.store.cfg.Fields
	session, err := c.store.client.StartSession()
	if err != nil {
		return foreignSeen{}, fmt.Errorf("starting a session: %w", err)
	}
	defer session.EndSession(context.WithoutCancel(ctx))
	ctx = mongo.NewSessionContext(ctx, session)
	var seen foreignSeen
	for _, filter := range []bson.D{
		{{Key: f.Seq, Value: nil}, {Key: f.OccurredAt, Value: op("$lt", c.old)}},
		{
			{Key: f.Seq, Value: nil},
			{Key: f.OccurredAt, Value: nil},
			{Key: "_id", Value: op("$lt", bson.NewObjectIDFromTimestamp(c.old))},
		},
	} {
		ids, err := c.idsOf(ctx, filter)
		if err != nil {
			return foreignSeen{}, err
		}
		seen.ids = append(seen.ids, ids...)
	}
	if at := session.OperationTime(); at != nil {
		seen.at = *at
	} else if !c.poll && len(seen.ids) > 0 {
		return foreignSeen{}, errors.New("the server told no operation time")
	}
	return seen, nil
}

func (c *cleaning) idsOf(ctx context.Context, filter bson.D) ([]bson.RawValue, error) {
	and := bson.A{filter, c.removable(bson.D{})}
	found, err := c.store.log.Find(ctx, op("$and", and),
		options.Find().SetProjection(bson.D{{Key: "_id", Value: 1}}).SetLimit(cleanForeign))
	if err != nil {
		return nil, fmt.Errorf("looking for old events without a seq: %w", err)
	}
	defer found.Close(ctx) //nolint:errcheck // nothing was written
	var ids []bson.RawValue
	for found.Next(ctx) {
		id := found.Current.Lookup("_id")
		ids = append(ids, bson.RawValue{Type: id.Type, Value: slices.Clone(id.Value)})
	}
	if err := found.Err(); err != nil {
		return nil, fmt.Errorf("looking for old events without a seq: %w", err)
	}
	return ids, nil
}

func (c *cleaning) removeForeign(ctx context.Context, ids []bson.RawValue) error {
	for chunk := range slices.Chunk(ids, cleanRange) {
		res, err := c.store.log.DeleteMany(ctx, op("$and", bson.A{
			bson.D{{Key: "_id", Value: op("$in", chunk)}}, c.removable(bson.D{}),
		}))
		if err != nil {
			return fmt.Errorf("removing events without a seq: %w", err)
		}
		c.result.Removed += res.DeletedCount
		crash.Here("mongo.cleaner")
	}
	return nil
}
