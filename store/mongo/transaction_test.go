package mongo

import (
	"context"
	"strings"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/gooutbox/outbox/internal/servicetest"
)

// A commit whose answer was lost is sent again; it must not be taken for a
// failure, nor run the function twice.
func TestACommitWhoseAnswerWasLostIsNoFailure(t *testing.T) {
	t.Parallel()
	db := faulty(t)
	s := newStore(t, db, Config{})
	failNext(t, db, "commitTransaction", bson.E{Key: "closeConnection", Value: true})
	runs := 0
	err := s.InTransaction(t.Context(), func(ctx context.Context) error {
		runs++
		return s.Append(ctx, order("a"))
	})
	if err != nil || runs != 1 {
		t.Fatalf("%d runs, %v", runs, err)
	}
	if n := count(t, s.log, bson.D{}); n != 1 {
		t.Fatalf("%d events, want 1", n)
	}
}

// The function runs again after a conflict; no error reaches the caller, and no
// event of a run that was rolled back stays.
func TestAConflictRunsTheFunctionAgain(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{})
	counters := s.db.Collection("counters")
	if _, err := counters.InsertOne(t.Context(), bson.D{{Key: "_id", Value: "c"}, {Key: "n", Value: 0}}); err != nil {
		t.Fatal(err)
	}
	const writers = 6
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			err := s.InTransaction(t.Context(), func(ctx context.Context) error {
				if err := s.Append(ctx, order("")); err != nil {
					return err
				}
				_, err := counters.UpdateByID(ctx, "c", bson.D{{Key: "$inc", Value: bson.D{{Key: "n", Value: 1}}}})
				return err
			})
			if err != nil {
				t.Errorf("an error reached the caller: %v", err)
			}
		})
	}
	wg.Wait()
	if n := count(t, s.log, bson.D{}); n != writers {
		t.Errorf("%d events, want %d", n, writers)
	}
}

func TestAPanicRollsBack(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{})
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		_ = s.InTransaction(t.Context(), func(ctx context.Context) error {
			if err := s.Append(ctx, order("phantom")); err != nil {
				t.Error(err)
			}
			panic("the caller's")
		})
	}()
	appendNow(t, s, order("next")) // nothing of it is in the way
	if n := count(t, s.log, bson.D{}); n != 1 {
		t.Errorf("%d events, want 1", n)
	}
}

func TestAStandaloneSaysThatItHasNoTransactions(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.StandaloneDatabase(t), Config{})
	err := s.InTransaction(t.Context(), func(ctx context.Context) error { return s.Append(ctx, order("a")) })
	if err == nil || !strings.Contains(err.Error(), "--replSet") {
		t.Fatalf("got %v, want it to say what to do", err)
	}
}
