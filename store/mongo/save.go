package mongo

import (
	"context"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/gooutbox/outbox/core"
)

// markChunk is how many events one update marks as published.
const markChunk = 1000

// Save stores the position of the last of the marks, extends the lease, and
// sets published_at where marking is on.
//
// Where there are transactions the marks and the position are one: a crash
// leaves both or none. On a standalone the position goes first, since it alone
// is fenced: a crash in between leaves delivered events unmarked, and the next
// term delivers them again. The other way round a holder that was replaced
// would write before it learns so.
func (c *cursor) Save(ctx context.Context, settled []core.Mark) error {
	if len(settled) == 0 {
		return c.Renew(ctx)
	}
	c.saving.Lock()
	defer c.saving.Unlock()
	last, err := ownMark(settled[len(settled)-1])
	if err != nil {
		return err
	}
	ids, err := idsOf(settled)
	if err != nil {
		return err
	}
	set, unset, moved := c.progress(last, ids)
	switch {
	case !c.marks || len(ids) == 0:
		err = c.write(ctx, set, unset...)
	case c.store.transacts(ctx):
		err = c.extending(func() error {
			_, err := c.store.transact(ctx, func(ctx context.Context) error {
				if err := c.update(ctx, set, unset...); err != nil {
					return err
				}
				return c.store.markPublished(ctx, ids)
			})
			return err
		})
	default:
		if err = c.write(ctx, set, unset...); err == nil {
			err = c.store.markPublished(ctx, ids)
		}
	}
	if err != nil {
		return fmt.Errorf("saving the position of cursor %q: %w", c.doc.Name, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if moved {
		c.position, c.moved = last.pos, true
	}
	if slices.Contains(unset, "suspect") {
		c.noted, c.count, c.counted = bson.RawValue{}, 0, false
	}
	return nil
}

// progress is what a Save changes in the document.
func (c *cursor) progress(last *mark, ids []bson.RawValue) (set bson.D, unset []string, moved bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	set = bson.D{{Key: "settled", Value: op("$add", bson.A{"$settled", int64(len(ids))})}}
	if !c.noted.IsZero() && slices.ContainsFunc(ids, c.noted.Equal) {
		unset = append(unset, "suspect")
	}
	if last.pos.Compare(c.position) < 0 {
		return set, unset, false // never backwards within a term
	}
	moved = last.pos != c.position
	if moved {
		set = append(set, bson.E{Key: "position", Value: literal(stored(last.pos))}, bson.E{Key: "fruitless", Value: 0})
	}
	// Token and scan say where to read on: one of them at a time.
	if last.token != nil {
		set = append(set, bson.E{Key: "token", Value: literal(last.token)})
	} else {
		unset = append(unset, "token")
	}
	if last.scan != nil {
		set = append(set, bson.E{Key: "scan", Value: literal(*last.scan)})
	} else {
		unset = append(unset, "scan")
	}
	return set, unset, moved
}

// idsOf are the ids of the documents that the marks stand for.
func idsOf(marks []core.Mark) ([]bson.RawValue, error) {
	ids := make([]bson.RawValue, 0, len(marks))
	for _, m := range marks {
		own, err := ownMark(m)
		if err != nil {
			return nil, err
		}
		if !own.id.IsZero() {
			ids = append(ids, own.id)
		}
	}
	return ids, nil
}

// markPublished sets published_at, by the server's clock, where it isn't set.
func (s *Store) markPublished(ctx context.Context, ids []bson.RawValue) error {
	published := s.cfg.Fields.PublishedAt
	for chunk := range slices.Chunk(ids, markChunk) {
		filter := bson.D{{Key: "_id", Value: op("$in", chunk)}, {Key: published, Value: nil}}
		if _, err := s.log.UpdateMany(ctx, filter, bson.A{op("$set", bson.D{{Key: published, Value: "$$NOW"}})}); err != nil {
			return fmt.Errorf("marking events as published: %w", err)
		}
	}
	return nil
}
