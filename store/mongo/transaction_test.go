package mongo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

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
	orders := s.db.Collection("orders")
	for name, fn := range map[string]func(ctx context.Context) error{
		"append": func(ctx context.Context) error { return s.Append(ctx, order("a")) },
		"write": func(ctx context.Context) error {
			_, err := orders.InsertOne(ctx, bson.D{})
			return err
		},
		"read": func(ctx context.Context) error { return orders.FindOne(ctx, bson.D{}).Err() },
		"wrapped": func(ctx context.Context) error {
			_, err := orders.InsertOne(ctx, bson.D{})
			return fmt.Errorf("placing an order: %w", err)
		},
		"as text only": func(ctx context.Context) error {
			_, err := orders.InsertOne(ctx, bson.D{})
			return fmt.Errorf("placing an order: %v", err) //nolint:errorlint // as programs do
		},
		"append swallowed": func(ctx context.Context) error {
			_ = s.Append(ctx, order("a"))
			return nil
		},
		"write swallowed": func(ctx context.Context) error {
			_, _ = orders.InsertOne(ctx, bson.D{})
			return nil
		},
	} {
		err := s.InTransaction(t.Context(), fn)
		if err == nil || !strings.Contains(err.Error(), "--replSet") || !strings.Contains(err.Error(), "AllowNoTransaction") {
			t.Errorf("%s: got %v, want it to say what to do", name, err)
		} else if strings.Count(err.Error(), "--replSet") > 1 {
			t.Errorf("%s: it is said twice: %v", name, err)
		}
	}
	err := s.InTransaction(t.Context(), func(context.Context) error { return errors.New("out of stock") })
	if err == nil || err.Error() != "out of stock" {
		t.Errorf("an error of another kind came back as %v", err)
	}
}

// The caller's own transaction ends in Append.
func TestAStandaloneSaysItInATransactionOfTheCaller(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.StandaloneDatabase(t), Config{})
	err := s.client.UseSession(t.Context(), func(ctx context.Context) error {
		if err := mongo.SessionFromContext(ctx).StartTransaction(); err != nil {
			return err
		}
		return s.Append(ctx, order("a"))
	})
	if err == nil || !strings.Contains(err.Error(), "--replSet") {
		t.Fatalf("got %v, want it to say what to do", err)
	}
}
