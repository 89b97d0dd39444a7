package dedupetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/gooutbox/outbox/consumer/dedupe"
)

// patience is how long anything healthy may take, in a test on a busy machine.
const patience = 30 * time.Second

// rules, whose names are part of what the package promises.
var rules = []struct {
	name string
	run  func(t *testing.T, s dedupe.Store)
}{
	{"MarkIsKept", markIsKept},
	{"MarkOfAFailureIsNot", markOfAFailureIsNot},
	{"ErrorComesBack", errorComesBack},
	{"RepeatSpoilsNoOther", repeatSpoilsNoOther},
	{"ConsumersAreApart", consumersAreApart},
	{"OneOfManyMarks", oneOfManyMarks},
	{"HighestVersionIsKept", highestVersionIsKept},
	{"VersionOfAFailureIsNot", versionOfAFailureIsNot},
	{"VersionsAreRaisedOneByOne", versionsAreRaisedOneByOne},
	{"HighestFenceIsKept", highestFenceIsKept},
	{"OneHasTheReservation", oneHasTheReservation},
	{"RepeatedReservationIsFound", repeatedReservationIsFound},
	{"FinishMarks", finishMarks},
	{"MarkedIsNotReserved", markedIsNotReserved},
	{"AbandonedIsTakenOver", abandonedIsTakenOver},
	{"RenewedIsNotTakenOver", renewedIsNotTakenOver},
	{"FormerHolderWritesNothing", formerHolderWritesNothing},
	{"LateHolderFinishes", lateHolderFinishes},
	{"AbandonedIsReported", abandonedIsReported},
	{"ReportedIsFinishedLate", reportedIsFinishedLate},
	{"ReleasedIsFree", releasedIsFree},
	{"ReleasedInDoubtIsAgain", releasedInDoubtIsAgain},
	{"DoubtIsKept", doubtIsKept},
	{"UnknownIsResolved", unknownIsResolved},
}

// Run runs all rules, in parallel, each on a store of its own.
func Run(t *testing.T, open func(t *testing.T) dedupe.Store) {
	t.Helper()
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			r.run(t, open(t))
		})
	}
}

const (
	retention = time.Hour
	long      = time.Hour              // a lease that doesn't run out
	short     = 100 * time.Millisecond // one that does
)

func key(id string) dedupe.Key { return dedupe.Key{Consumer: "mailer", EventID: id} }

func limited(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

var errEffect = errors.New("the effect failed")

// mark marks keys in a transaction that ends with the error.
func mark(t *testing.T, s dedupe.Store, end error, keys ...dedupe.Key) []bool {
	t.Helper()
	var fresh []bool
	err := s.Transaction(limited(t), func(_ context.Context, tx dedupe.Tx) error {
		var err error
		if fresh, err = tx.Mark(keys, retention); err != nil {
			return err
		}
		return end
	})
	if !errors.Is(err, end) {
		t.Fatalf("the transaction ended with %v, want %v", err, end)
	}
	if len(fresh) != len(keys) {
		t.Fatalf("%d answers for %d keys", len(fresh), len(keys))
	}
	return fresh
}

func raise(t *testing.T, s dedupe.Store, end error, subject dedupe.Subject, version int64) (before int64, known bool) {
	t.Helper()
	err := s.Transaction(limited(t), func(_ context.Context, tx dedupe.Tx) error {
		var err error
		if before, known, err = tx.Raise(subject, version, retention); err != nil {
			return err
		}
		return end
	})
	if !errors.Is(err, end) {
		t.Fatalf("the transaction ended with %v, want %v", err, end)
	}
	return before, known
}

func fences(t *testing.T, s dedupe.Store, lanes ...dedupe.Lane) []uint64 {
	t.Helper()
	var highest []uint64
	err := s.Transaction(limited(t), func(_ context.Context, tx dedupe.Tx) error {
		var err error
		highest, err = tx.Fences(lanes, retention)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return highest
}

func ask(t *testing.T, s dedupe.Store, k dedupe.Key, token string, lease time.Duration, report bool) dedupe.Reservation {
	t.Helper()
	res, err := s.Reserve(limited(t), dedupe.ReserveRequest{Key: k, Token: token, Lease: lease, Retention: retention, Report: report})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// reserve fails the test unless token gets the key.
func reserve(t *testing.T, s dedupe.Store, k dedupe.Key, token string, lease time.Duration) dedupe.Reservation {
	t.Helper()
	res := ask(t, s, k, token, lease, false)
	if res.State != dedupe.Reserved {
		t.Fatalf("token %s got state %d, want the reservation", token, res.State)
	}
	return res
}

// afterwards asks with the token "two" until the key isn't busy any more.
func afterwards(t *testing.T, s dedupe.Store, k dedupe.Key, report bool) dedupe.Reservation {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		res := ask(t, s, k, "two", long, report)
		if res.State != dedupe.Busy {
			return res
		}
		select {
		case <-time.After(min(max(res.After, time.Millisecond), patience)):
		case <-t.Context().Done():
		}
	}
	t.Fatal("the reservation doesn't run out")
	return dedupe.Reservation{}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func lost(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, dedupe.ErrLost) {
		t.Errorf("%s by who doesn't hold it: %v, want ErrLost", what, err)
	}
}
