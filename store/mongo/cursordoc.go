package mongo

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// decodeCursor reads a stored cursor. One that can't be read was changed by
// hand, or by something else than a store.
func (s *Store) decodeCursor(raw bson.Raw) (cursorDoc, error) {
	var doc cursorDoc
	if err := bson.Unmarshal(raw, &doc); err != nil {
		name, _ := textOf(raw.Lookup("_id"))
		return cursorDoc{}, fmt.Errorf("reading the document of cursor %q in %s: restore it, or delete it, which lets the cursor start anew: %w",
			name, s.cursors.Name(), err)
	}
	return doc, nil
}

// updateRefused tells why the server refused an update of a cursor: a document
// that can't be read can't be changed either.
func (s *Store) updateRefused(ctx context.Context, name string, err error) error {
	if !isServerError(err) {
		return err
	}
	raw, findErr := s.cursors.FindOne(ctx, bson.D{{Key: "_id", Value: name}}).Raw()
	if findErr != nil {
		return err
	}
	if _, unreadable := s.decodeCursor(raw); unreadable != nil {
		return fmt.Errorf("%w (%w)", unreadable, err)
	}
	return err
}
