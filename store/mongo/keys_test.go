package mongo

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/gooutbox/outbox/internal/servicetest"
)

// The transactions share no document but the key's. Each notes the next number
// it believes to be free; the number is right only if they don't overlap.
func TestSerializeKeysKeepsTransactionsOfAKeyApart(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{SerializeKeys: true})
	const writers, each = 8, 5
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				err := s.InTransaction(t.Context(), func(ctx context.Context) error {
					e := order(fmt.Sprintf("%d-%d", w, i))
					if err := s.Append(ctx, e); err != nil {
						return err
					}
					n, err := s.log.CountDocuments(ctx, bson.D{})
					if err != nil {
						return err
					}
					_, err = s.log.UpdateByID(ctx, e.ID, bson.D{{Key: "$set", Value: bson.D{{Key: "nth", Value: n}}}})
					return err
				})
				if err != nil {
					t.Errorf("an error reached the caller: %v", err)
				}
			}
		})
	}
	wg.Wait()
	found, err := s.log.Find(t.Context(), bson.D{}, sortBySeq())
	if err != nil {
		t.Fatal(err)
	}
	var docs []struct {
		Nth int64 `bson:"nth"`
	}
	if err := found.All(t.Context(), &docs); err != nil {
		t.Fatal(err)
	}
	if len(docs) != writers*each {
		t.Fatalf("%d events, want %d", len(docs), writers*each)
	}
	for i, doc := range docs {
		if doc.Nth != int64(i+1) {
			t.Fatalf("event %d in the order of seq saw %d events: two transactions overlapped", i+1, doc.Nth)
		}
	}
}
