package mongo

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// passChunk is how many ids are held in memory while they are marked.
const passChunk = 10_000

// passOver marks as published what a polled log held when a cursor began from
// now: the marks are what tells a poll where to go on. It reads in the snapshot
// of that time, so that an event whose transaction was open then is left. A
// crash on the way is made good by the next holder; one that comes too late for
// the snapshot passes over what no transaction can have held open, and delivers
// the rest.
func (c *cursor) passOver(ctx context.Context) error {
	err := c.passSnapshot(ctx)
	if hasCode(err, codeSnapshotTooOld, codeSnapshotUnavailable) {
		c.store.logger.WarnContext(ctx, "the start of the cursor is too long ago to tell what was written before it: some older events are delivered",
			"cursor", c.doc.Name)
		c.doc.From = before(c.doc.Pass, c.margin)
		return c.write(ctx, bson.D{{Key: "from", Value: c.doc.From}}, "pass")
	}
	return err
}

func (c *cursor) passSnapshot(ctx context.Context) error {
	session, err := c.store.client.StartSession(options.Session().SetSnapshot(true).SetSnapshotTime(c.doc.Pass))
	if err != nil {
		return fmt.Errorf("starting a session: %w", err)
	}
	defer session.EndSession(context.WithoutCancel(ctx))
	snapshot := mongo.NewSessionContext(ctx, session)
	found, err := c.store.log.Find(snapshot, bson.D{{Key: c.store.cfg.Fields.PublishedAt, Value: nil}},
		options.Find().SetProjection(bson.D{{Key: "_id", Value: 1}}))
	if err != nil {
		return fmt.Errorf("looking for events before the cursor's start: %w", err)
	}
	defer found.Close(snapshot) //nolint:errcheck // nothing was written
	var ids []bson.RawValue
	mark := func() error {
		if err := c.write(ctx, nil); err != nil {
			return err
		}
		err := c.store.markPublished(ctx, ids)
		ids = ids[:0]
		return err
	}
	for found.Next(snapshot) {
		ids = append(ids, copyOf(found.Current.Lookup("_id")))
		if len(ids) == passChunk {
			if err := mark(); err != nil {
				return err
			}
		}
	}
	if err := found.Err(); err != nil {
		return fmt.Errorf("looking for events before the cursor's start: %w", err)
	}
	if err := mark(); err != nil {
		return err
	}
	return c.write(ctx, nil, "pass")
}
