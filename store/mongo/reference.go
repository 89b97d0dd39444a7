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

// errReferredGone: a job is a reference, and its event is no longer in the log.
var errReferredGone = errors.New("the job refers to an event that is no longer in the log")

// readReferred gives a job that is a reference the event of the log. What no
// retry can cure is in j.err; an error means that the log can't be read now.
func (s *Store) readReferred(ctx context.Context, j *readJob) error {
	if j.reference.IsZero() {
		return nil
	}
	raw, err := s.referred(ctx, j.reference, bson.D{})
	if err != nil {
		return err
	}
	if raw == nil {
		j.err = core.MarkRejected(errReferredGone)
		return nil
	}
	event, err := s.decodeEvent(ctx, raw)
	if isDecodeError(err) {
		err = core.MarkRejected(err)
	}
	j.event, j.err = event, err
	return nil
}

// keyOfReferred is the key of the event that a job refers to, or "" where it is
// gone or has none.
func (s *Store) keyOfReferred(ctx context.Context, reference bson.RawValue) (string, error) {
	raw, err := s.referred(ctx, reference, bson.D{{Key: s.cfg.Fields.AggregateID, Value: 1}})
	if err != nil || raw == nil {
		return "", err
	}
	key, _ := textOf(raw.Lookup(s.cfg.Fields.AggregateID))
	return key, nil
}

// referred is the log's document that a job refers to, or nil.
func (s *Store) referred(ctx context.Context, reference bson.RawValue, projection bson.D) (bson.Raw, error) {
	find := func(id bson.RawValue) (bson.Raw, error) {
		raw, err := s.log.FindOne(ctx, bson.D{{Key: "_id", Value: id}}, options.FindOne().SetProjection(projection)).Raw()
		switch {
		case errors.Is(err, mongo.ErrNoDocuments):
			return nil, nil
		case err != nil:
			return nil, fmt.Errorf("reading the event that a job refers to: %w", err)
		}
		return raw, nil
	}
	raw, err := find(reference)
	if err != nil || raw != nil || !isHashedID(reference) {
		return raw, err
	}
	id, err := s.longIDOf(ctx, reference)
	if err != nil || id.IsZero() {
		return nil, err
	}
	return find(id)
}

// longIDOf finds the _id of which a job holds the hash. The server can't look for
// it, so all ids of that length are read.
func (s *Store) longIDOf(ctx context.Context, note bson.RawValue) (bson.RawValue, error) {
	found, err := s.log.Find(ctx, longID(), options.Find().SetProjection(bson.D{{Key: "_id", Value: 1}}))
	if err != nil {
		return bson.RawValue{}, fmt.Errorf("looking for the event that a job refers to: %w", err)
	}
	defer found.Close(ctx) //nolint:errcheck // nothing was written
	for found.Next(ctx) {
		if id := found.Current.Lookup("_id"); noteOf(id).Equal(note) {
			return copyOf(id), nil
		}
	}
	if err := found.Err(); err != nil {
		return bson.RawValue{}, fmt.Errorf("looking for the event that a job refers to: %w", err)
	}
	return bson.RawValue{}, nil
}
