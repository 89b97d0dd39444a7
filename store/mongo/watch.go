package mongo

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/gooutbox/outbox/core"
)

// errQueueGone: the collection of jobs was dropped or renamed.
var errQueueGone = errors.New("the collection of jobs was dropped or renamed")

// watchPipeline lets through what may make a job due, and what ends a stream.
// An update that replaces much of a document comes as a replacement. A job that
// a cursor parks is its holder's, who knows. The sink of an update isn't told,
// unless by the bell that a person's act on a job of a cursor rings.
//
// Each branch is flat, or the server doesn't turn it into a filter of the oplog,
// and takes twice as long for each claim and settlement that it passes over.
var watchPipeline = mongo.Pipeline{
	op("$match", op("$or", bson.A{
		bson.D{
			{Key: "operationType", Value: "insert"},
			{Key: "fullDocument.state", Value: core.JobReady},
			{Key: "fullDocument.cursor", Value: op("$exists", false)},
		},
		bson.D{{Key: "operationType", Value: "replace"}, {Key: "fullDocument.state", Value: core.JobReady}},
		bson.D{{Key: "operationType", Value: "update"}, {Key: "updateDescription.updatedFields.state", Value: core.JobReady}},
		// A person makes a job due that waits: it was ready before.
		bson.D{{Key: "operationType", Value: "update"}, {Key: "updateDescription.updatedFields.available_at", Value: op("$exists", true)}},
		// Discarding a job of a cursor lets its key go on.
		bson.D{{Key: "operationType", Value: "update"}, {Key: "updateDescription.updatedFields.discarded", Value: true}},
		bson.D{{Key: "operationType", Value: "replace"}, {Key: "fullDocument.discarded", Value: true}},
		bson.D{{Key: "documentKey._id.pause", Value: op("$exists", true)}},
		bson.D{{Key: "operationType", Value: op("$in", bson.A{"drop", "rename", "dropDatabase", "invalidate"})}},
	})),
	op("$project", bson.D{{Key: "operationType", Value: 1}, {Key: "sink", Value: op("$ifNull", bson.A{
		"$fullDocument.sink", "$updateDescription.updatedFields.bell",
	})}}),
}

// Watch tells of changes until ctx ends, see core.Queue. It also calls wake
// once when it has begun: what changed before is not told. It costs a round
// trip each Config.ReadWait while nothing changes.
func (s *Store) Watch(ctx context.Context, wake func(core.Wake)) error {
	if err := s.watch(withoutSession(ctx), wake); err != nil {
		return fmt.Errorf("watching the queue: %w", err)
	}
	return nil
}

func (s *Store) watch(ctx context.Context, wake func(core.Wake)) error {
	d, err := s.deployment(ctx)
	if err != nil {
		return err
	}
	if !d.set || s.cfg.Poll {
		return core.ErrNoWatch
	}
	p := patience{base: callPatience + s.cfg.ReadWait}
	var cs *mongo.ChangeStream
	unanswered := p.call(ctx, func(ctx context.Context) {
		cs, err = s.jobs.Watch(ctx, watchPipeline, options.ChangeStream().SetMaxAwaitTime(s.cfg.ReadWait))
	})
	if err != nil {
		if meaningOf(err) == meansNone {
			return core.ErrNoWatch
		}
		return errors.Join(unanswered, err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoPatience)
		defer cancel()
		_ = cs.Close(ctx) // it ends by itself in any case
	}()
	wake(core.Wake{})
	for {
		var got bool
		if unanswered := p.call(ctx, func(ctx context.Context) { got = cs.TryNext(ctx) }); unanswered != nil && !got {
			return unanswered
		}
		switch {
		case got:
			if err := tell(ctx, cs, wake); err != nil {
				return err
			}
		case ctx.Err() != nil:
			return ctx.Err()
		case cs.Err() != nil:
			return cs.Err()
		case cs.ID() == 0:
			return errEnded
		}
	}
}

// tell wakes once for each sink of the changes that have come together.
func tell(ctx context.Context, cs *mongo.ChangeStream, wake func(core.Wake)) error {
	told := map[string]bool{}
	for {
		operation, _ := cs.Current.Lookup("operationType").StringValueOK()
		switch operation {
		case "drop", "rename", "dropDatabase", "invalidate":
			return errQueueGone
		}
		sink, _ := cs.Current.Lookup("sink").StringValueOK()
		if !told[sink] {
			told[sink] = true
			wake(core.Wake{Sink: sink})
		}
		if cs.RemainingBatchLength() == 0 || !cs.TryNext(ctx) {
			return nil
		}
	}
}
