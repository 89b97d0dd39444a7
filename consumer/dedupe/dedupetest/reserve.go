package dedupetest

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/gooutbox/outbox/consumer/dedupe"
)

func oneHasTheReservation(t *testing.T, s dedupe.Store) {
	for i := range 20 {
		k := key(fmt.Sprint("e", i))
		var reserved, busy atomic.Int64
		many(6, func(n int) {
			res, err := s.Reserve(limited(t), dedupe.ReserveRequest{Key: k, Token: fmt.Sprint("t", n), Lease: long, Retention: retention})
			if err != nil {
				t.Error(err)
				return
			}
			switch {
			case res.State == dedupe.Reserved:
				reserved.Add(1)
			case res.State == dedupe.Busy && res.After > 0 && res.After < 2*long:
				busy.Add(1)
			default:
				t.Errorf("state %d, after %v", res.State, res.After)
			}
		})
		if reserved.Load() != 1 || busy.Load() != 5 {
			t.Fatalf("%d have the reservation, %d are told to come back; want 1 and 5", reserved.Load(), busy.Load())
		}
	}
}

func repeatedReservationIsFound(t *testing.T, s dedupe.Store) {
	reserve(t, s, key("a"), "one", long)
	if res := reserve(t, s, key("a"), "one", long); res.Again {
		t.Error("a repeated call is taken for another's")
	}
}

func finishMarks(t *testing.T, s dedupe.Store) {
	reserve(t, s, key("a"), "one", long)
	ok(t, s.Finish(limited(t), key("a"), "one", retention))
	ok(t, s.Finish(limited(t), key("a"), "one", retention))
	if res := ask(t, s, key("a"), "two", long, false); res.State != dedupe.Marked {
		t.Errorf("a finished event has state %d", res.State)
	}
	if res := ask(t, s, key("a"), "one", long, false); res.State != dedupe.Marked {
		t.Errorf("a finished event has state %d for its former holder", res.State)
	}
}

func markedIsNotReserved(t *testing.T, s dedupe.Store) {
	mark(t, s, nil, key("a"))
	if res := ask(t, s, key("a"), "one", long, false); res.State != dedupe.Marked {
		t.Errorf("a marked event has state %d", res.State)
	}
}

func abandonedIsTakenOver(t *testing.T, s dedupe.Store) {
	if res := reserve(t, s, key("a"), "one", short); res.Again {
		t.Error("the first reservation is said to be another's before")
	}
	res := afterwards(t, s, key("a"), false)
	if res.State != dedupe.Reserved || !res.Again {
		t.Errorf("after the lease: %+v, want the reservation, again", res)
	}
}

func renewedIsNotTakenOver(t *testing.T, s dedupe.Store) {
	reserve(t, s, key("a"), "one", short)
	reserve(t, s, key("clock"), "one", short)
	ok(t, s.Renew(limited(t), key("a"), "one", long))
	afterwards(t, s, key("clock"), false) // as long as the first lease
	if res := ask(t, s, key("a"), "two", long, false); res.State != dedupe.Busy {
		t.Errorf("a renewed reservation has state %d for another", res.State)
	}
}

func formerHolderWritesNothing(t *testing.T, s dedupe.Store) {
	k := key("a")
	reserve(t, s, k, "one", short)
	afterwards(t, s, k, false)
	lost(t, "Renew", s.Renew(limited(t), k, "one", long))
	lost(t, "Finish", s.Finish(limited(t), k, "one", retention))
	lost(t, "Doubt", s.Doubt(limited(t), k, "one"))
	ok(t, s.Release(limited(t), k, "one", false))
	ok(t, s.Release(limited(t), k, "one", true))
	if res := ask(t, s, k, "three", long, false); res.State != dedupe.Busy {
		t.Errorf("after what a former holder did the state is %d, want it to be the second one's", res.State)
	}
	ok(t, s.Finish(limited(t), k, "two", retention))
	lost(t, "Finish of what is finished", s.Finish(limited(t), k, "one", retention))
	lost(t, "Finish of what never was", s.Finish(limited(t), key("b"), "one", retention))
}

// Nobody has taken it, so it is still the holder's.
func lateHolderFinishes(t *testing.T, s dedupe.Store) {
	reserve(t, s, key("a"), "one", short)
	reserve(t, s, key("clock"), "one", short)
	afterwards(t, s, key("clock"), false)
	ok(t, s.Finish(limited(t), key("a"), "one", retention))
	if res := ask(t, s, key("a"), "two", long, false); res.State != dedupe.Marked {
		t.Errorf("the event has state %d", res.State)
	}
}

func abandonedIsReported(t *testing.T, s dedupe.Store) {
	reserve(t, s, key("a"), "one", short)
	if res := afterwards(t, s, key("a"), true); res.State != dedupe.Doubtful {
		t.Fatalf("after the lease the state is %d, want it to be unknown", res.State)
	}
	if res := ask(t, s, key("a"), "three", long, false); res.State != dedupe.Doubtful {
		t.Errorf("an unknown event has state %d for the next", res.State)
	}
	listed(t, s, "a")
}

func listed(t *testing.T, s dedupe.Store, want ...string) {
	t.Helper()
	found, err := s.Unknowns(limited(t), "mailer", 10)
	ok(t, err)
	if len(found) != len(want) {
		t.Fatalf("%d unknown events are listed, want %d", len(found), len(want))
	}
	for i, u := range found {
		if u.EventID != want[i] || u.Since.IsZero() {
			t.Errorf("listed: %+v, want %s and since when", u, want[i])
		}
	}
}

func reportedIsFinishedLate(t *testing.T, s dedupe.Store) {
	reserve(t, s, key("a"), "one", short)
	afterwards(t, s, key("a"), true)
	ok(t, s.Finish(limited(t), key("a"), "one", retention))
	if res := ask(t, s, key("a"), "three", long, true); res.State != dedupe.Marked {
		t.Errorf("what its holder finished late has state %d", res.State)
	}
	listed(t, s)
}

func releasedIsFree(t *testing.T, s dedupe.Store) {
	reserve(t, s, key("a"), "one", long)
	ok(t, s.Release(limited(t), key("a"), "one", false))
	if res := reserve(t, s, key("a"), "two", long); res.Again {
		t.Error("what was given back is said to be in doubt")
	}
	ok(t, s.Release(limited(t), key("a"), "two", false))
	if got := mark(t, s, nil, key("a")); !got[0] {
		t.Error("what was given back is taken for seen")
	}
}

func releasedInDoubtIsAgain(t *testing.T, s dedupe.Store) {
	reserve(t, s, key("a"), "one", long)
	ok(t, s.Release(limited(t), key("a"), "one", true))
	if res := reserve(t, s, key("a"), "two", long); !res.Again {
		t.Error("what was given back in doubt is said to be new")
	}
	lost(t, "Renew", s.Renew(limited(t), key("a"), "one", long))
}

func doubtIsKept(t *testing.T, s dedupe.Store) {
	for _, id := range []string{"b", "a"} {
		reserve(t, s, key(id), "one", long)
		ok(t, s.Doubt(limited(t), key(id), "one"))
		ok(t, s.Doubt(limited(t), key(id), "one"))
	}
	if res := ask(t, s, key("a"), "two", long, false); res.State != dedupe.Doubtful {
		t.Errorf("what was doubted has state %d", res.State)
	}
	if found, err := s.Unknowns(limited(t), "mailer", 1); err != nil || len(found) != 1 {
		t.Errorf("%d listed with a limit of 1, %v", len(found), err)
	}
	if found, err := s.Unknowns(limited(t), "mail", 10); err != nil || len(found) != 0 {
		t.Errorf("%d listed of another consumer, %v", len(found), err)
	}
	listed(t, s, "a", "b")
}

func unknownIsResolved(t *testing.T, s dedupe.Store) {
	for id, done := range map[string]bool{"a": true, "b": false} {
		reserve(t, s, key(id), "one", long)
		if err := s.Resolve(limited(t), key(id), done, retention); !errors.Is(err, dedupe.ErrNotUnknown) {
			t.Errorf("resolving what is reserved: %v", err)
		}
		ok(t, s.Doubt(limited(t), key(id), "one"))
		ok(t, s.Resolve(limited(t), key(id), done, retention))
		if err := s.Resolve(limited(t), key(id), done, retention); !errors.Is(err, dedupe.ErrNotUnknown) {
			t.Errorf("resolving twice: %v", err)
		}
	}
	if res := ask(t, s, key("a"), "two", long, false); res.State != dedupe.Marked {
		t.Errorf("what was resolved as done has state %d", res.State)
	}
	if res := reserve(t, s, key("b"), "two", long); res.Again {
		t.Error("what was resolved as not done is said to be in doubt")
	}
}
