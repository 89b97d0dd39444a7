package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/gooutbox/outbox/internal/config"
)

// Codes of the server: a right is missing, a validator refuses a document.
const (
	codeUnauthorized = 13
	codeValidation   = 121
)

// nothing is a filter that no document matches.
var nothing = bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: bson.A{}}}}}

// errUndo rolls a trial transaction back.
var errUndo = errors.New("undo")

// checkRights tries each thing that the relay does in a way that changes
// nothing: reads of one document, writes that match none, and inserts that are
// rolled back.
func (s *mongoStore) checkRights(ctx context.Context, set bool, file *config.File, found *findings) {
	db := s.client.Database(s.options.Database)
	log := db.Collection(s.options.Collection)
	cursors, jobs, meta, acts := db.Collection(s.options.Collection+"_cursors"), db.Collection(s.options.Collection+"_jobs"),
		db.Collection(s.options.Collection+"_meta"), db.Collection(s.options.Collection+"_acts")
	marking := s.options.Polling || !set
	for _, r := range file.Routes {
		marking = marking || r.MarkPublished
	}
	var lacking []string
	doubtful := false
	try := func(what string, err error) {
		switch {
		case err == nil || errors.Is(err, mongo.ErrNoDocuments) || errors.Is(err, errUndo):
		case isUnauthorized(err):
			lacking = append(lacking, what)
		case hasCode(err, codeValidation):
			doubtful = true
			found.warn("rights", "trying to "+what+": a validator of that collection refuses what the store writes",
				"set the store's own by outbox indexes --validator, or remove the one that is there")
		default:
			doubtful = true
			found.warn("rights", fmt.Sprintf("trying to %s: %s", what, because(ctx, err)), "")
		}
	}
	for _, c := range []*mongo.Collection{log, cursors, jobs, meta, acts} {
		try("read "+c.Name(), c.FindOne(ctx, nothing).Err())
	}
	if set && !s.options.Polling {
		try("watch "+log.Name()+" (changeStream)", watchOnce(ctx, log))
	}
	for _, c := range []*mongo.Collection{cursors, jobs, meta, acts} {
		try("write "+c.Name()+" (update)", update(ctx, c))
	}
	if marking {
		try("mark in "+log.Name()+" (update)", update(ctx, log))
	}
	if file.Relay.Retention > 0 {
		_, err := log.DeleteMany(ctx, nothing)
		try("clean "+log.Name()+" (remove)", err)
	}
	_, err := jobs.DeleteMany(ctx, nothing)
	try("clean "+jobs.Name()+" (remove)", err)
	if set {
		// Whatever the validator of the jobs allows: a pause has few fields.
		id := bson.NewObjectID()
		try("write "+jobs.Name()+" (insert)", s.insertAndUndo(ctx, jobs, bson.D{{Key: "pause", Value: "check"}, {Key: "name", Value: id.Hex()}}))
		for _, c := range []*mongo.Collection{cursors, acts} {
			try("write "+c.Name()+" (insert)", s.insertAndUndo(ctx, c, id))
		}
	}
	if len(lacking) > 0 {
		found.fail("rights", "the user may not "+strings.Join(lacking, ", "),
			"grant the role readWrite on the database "+s.options.Database)
		return
	}
	if doubtful {
		return
	}
	found.ok("rights", "read, watch, write and clean %s.%s and what belongs to it", s.options.Database, s.options.Collection)
}

func isUnauthorized(err error) bool { return hasCode(err, codeUnauthorized) }

func hasCode(err error, code int) bool {
	se, ok := errors.AsType[mongo.ServerError](err)
	return ok && se.HasErrorCode(code)
}

func watchOnce(ctx context.Context, c *mongo.Collection) error {
	stream, err := c.Watch(ctx, mongo.Pipeline{}, options.ChangeStream().SetBatchSize(1))
	if err != nil {
		return err
	}
	return stream.Close(ctx)
}

func update(ctx context.Context, c *mongo.Collection) error {
	_, err := c.UpdateMany(ctx, nothing, bson.D{{Key: "$set", Value: bson.D{{Key: "checked", Value: true}}}})
	return err
}

func (s *mongoStore) insertAndUndo(ctx context.Context, c *mongo.Collection, id any) error {
	session, err := s.client.StartSession()
	if err != nil {
		return err
	}
	defer session.EndSession(context.WithoutCancel(ctx))
	_, err = session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
		if _, err := c.InsertOne(ctx, bson.D{{Key: "_id", Value: id}}); err != nil {
			return nil, err
		}
		return nil, errUndo
	})
	return err
}
