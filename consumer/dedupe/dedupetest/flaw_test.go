package dedupetest

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/gooutbox/outbox/consumer/dedupe"
	"github.com/gooutbox/outbox/consumer/dedupe/memory"
)

// flawVariable names the flaw of the store that TestStoreWithAFlaw runs on.
const flawVariable = "DEDUPETEST_FLAW"

// flaws, and the rules that have to notice. Others must not fail.
var flaws = map[string][]string{
	"none":                     nil,
	"forgets marks":            {"MarkIsKept", "RepeatSpoilsNoOther", "OneOfManyMarks", "MarkedIsNotReserved"},
	"marks first":              {"MarkOfAFailureIsNot"},
	"swallows errors":          {"MarkOfAFailureIsNot", "ErrorComesBack", "VersionOfAFailureIsNot"},
	"one repeat, all repeats":  {"RepeatSpoilsNoOther"},
	"one consumer for all":     {"ConsumersAreApart", "DoubtIsKept"},
	"keeps the last version":   {"HighestVersionIsKept", "VersionsAreRaisedOneByOne"},
	"keeps the last fence":     {"HighestFenceIsKept"},
	"everybody's":              {"OneHasTheReservation", "AbandonedIsTakenOver", "RenewedIsNotTakenOver", "FormerHolderWritesNothing", "AbandonedIsReported"},
	"calls everybody another":  {"RepeatedReservationIsFound"},
	"finishes nothing":         {"FinishMarks", "LateHolderFinishes", "ReportedIsFinishedLate"},
	"finishes once":            {"FinishMarks", "FormerHolderWritesNothing"},
	"knows no former":          {"AbandonedIsTakenOver", "ReleasedInDoubtIsAgain"},
	"renews nothing":           {"RenewedIsNotTakenOver"},
	"fences nobody":            {"RenewedIsNotTakenOver", "FormerHolderWritesNothing", "ReleasedInDoubtIsAgain"},
	"never reports":            {"AbandonedIsReported", "ReportedIsFinishedLate"},
	"releases nothing":         {"ReleasedIsFree", "ReleasedInDoubtIsAgain"},
	"releases without a doubt": {"ReleasedInDoubtIsAgain"},
	"doubts nothing":           {"DoubtIsKept", "UnknownIsResolved"},
	"lists all":                {"DoubtIsKept"},
	"resolves nothing":         {"UnknownIsResolved"},
	"resolves as done":         {"UnknownIsResolved"},
}

func TestEachRuleHasAFlaw(t *testing.T) {
	t.Parallel()
	noticed := map[string]bool{}
	for _, found := range flaws {
		for _, name := range found {
			noticed[name] = true
		}
	}
	for _, r := range rules {
		if !noticed[r.name] {
			t.Errorf("no flaw fails %s", r.name)
		}
	}
}

func TestStoreWithAFlaw(t *testing.T) {
	flaw := os.Getenv(flawVariable)
	if flaw == "" {
		flaw = "none"
	}
	Run(t, func(*testing.T) dedupe.Store { return &flawed{Store: memory.New(), flaw: flaw} })
}

// Each flaw is run in a process of its own, since a failed subtest can't be
// taken back.
func TestEachFlawFailsItsRules(t *testing.T) {
	t.Parallel()
	if os.Getenv(flawVariable) != "" {
		t.Skip("this is the inner run")
	}
	failed := regexp.MustCompile(`--- FAIL: TestStoreWithAFlaw/(\w+)`)
	for _, flaw := range slices.Sorted(maps.Keys(flaws)) {
		t.Run(flaw, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestStoreWithAFlaw$", "-test.timeout=2m")
			cmd.Env = append(os.Environ(), flawVariable+"="+flaw)
			out, err := cmd.CombinedOutput()
			got := map[string]bool{}
			for _, m := range failed.FindAllStringSubmatch(string(out), -1) {
				got[m[1]] = true
			}
			want := slices.Sorted(slices.Values(flaws[flaw]))
			if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, want) || (err == nil) != (len(want) == 0) {
				t.Errorf("failed rules: %v, want %v\n%s", names, want, out)
			}
		})
	}
}

// flawed breaks rules of a store that keeps them.
type flawed struct {
	dedupe.Store
	flaw string
}

func (f *flawed) Transaction(ctx context.Context, fn func(context.Context, dedupe.Tx) error) error {
	err := f.Store.Transaction(ctx, func(ctx context.Context, tx dedupe.Tx) error {
		err := fn(ctx, &flawedTx{Tx: tx, f: f})
		if f.flaw == "swallows errors" {
			return nil
		}
		return err
	})
	return err
}

type flawedTx struct {
	dedupe.Tx
	f *flawed
}

func (x *flawedTx) Mark(keys []dedupe.Key, retention time.Duration) ([]bool, error) {
	switch x.f.flaw {
	case "forgets marks":
		return slices.Repeat([]bool{true}, len(keys)), nil
	case "one consumer for all":
		keys = slices.Clone(keys)
		for i := range keys {
			keys[i].Consumer = "mailer"
		}
	}
	fresh, err := x.Tx.Mark(keys, retention)
	switch {
	case x.f.flaw == "marks first" && err == nil:
		x.f.now(keys)
	case x.f.flaw == "one repeat, all repeats" && slices.Contains(fresh, false):
		clear(fresh)
	}
	return fresh, err
}

// now marks keys without waiting for the transaction.
func (f *flawed) now(keys []dedupe.Key) {
	for _, key := range keys {
		if _, err := f.Store.Reserve(context.Background(), dedupe.ReserveRequest{Key: key, Token: "now", Lease: long, Retention: retention}); err == nil {
			_ = f.Store.Finish(context.Background(), key, "now", retention)
		}
	}
}

func (x *flawedTx) Raise(subject dedupe.Subject, version int64, retention time.Duration) (int64, bool, error) {
	if x.f.flaw == "keeps the last version" {
		before, known, err := x.Tx.Raise(subject, version, retention)
		return min(before, version-1), known, err
	}
	return x.Tx.Raise(subject, version, retention)
}

func (x *flawedTx) Fences(lanes []dedupe.Lane, retention time.Duration) ([]uint64, error) {
	highest, err := x.Tx.Fences(lanes, retention)
	if x.f.flaw == "keeps the last fence" {
		for i := range highest {
			highest[i] = lanes[i].Fence
		}
	}
	return highest, err
}

func (f *flawed) Reserve(ctx context.Context, req dedupe.ReserveRequest) (dedupe.Reservation, error) {
	if f.flaw == "never reports" {
		req.Report = false
	}
	res, err := f.Store.Reserve(ctx, req)
	switch {
	case f.flaw == "everybody's" && res.State == dedupe.Busy:
		res.State = dedupe.Reserved
	case f.flaw == "calls everybody another" && res.State == dedupe.Reserved && !res.Again:
		if f.Store.Renew(ctx, req.Key, req.Token, req.Lease) == nil {
			second, _ := f.Store.Reserve(ctx, req)
			res.Again = second.State == dedupe.Reserved && f.seen(req)
		}
	case f.flaw == "knows no former":
		res.Again = false
	}
	return res, err
}

// seen tells whether this request was made before.
func (f *flawed) seen(req dedupe.ReserveRequest) bool {
	before := false
	_ = f.Store.Transaction(context.Background(), func(_ context.Context, tx dedupe.Tx) error {
		fresh, err := tx.Mark([]dedupe.Key{{Consumer: "seen", EventID: req.Key.EventID + req.Token}}, retention)
		before = err == nil && !fresh[0]
		return err
	})
	return before
}

func (f *flawed) Renew(ctx context.Context, key dedupe.Key, token string, lease time.Duration) error {
	switch f.flaw {
	case "renews nothing":
		return f.Store.Renew(ctx, key, token, time.Nanosecond)
	case "fences nobody":
		return nil
	}
	return f.Store.Renew(ctx, key, token, lease)
}

func (f *flawed) Finish(ctx context.Context, key dedupe.Key, token string, retention time.Duration) error {
	switch f.flaw {
	case "finishes nothing":
		return f.Store.Renew(ctx, key, token, long)
	case "finishes once":
		if res, _ := f.Store.Reserve(ctx, dedupe.ReserveRequest{Key: key, Token: token, Lease: long, Retention: retention}); res.State == dedupe.Marked {
			return dedupe.ErrLost
		}
	}
	return f.Store.Finish(ctx, key, token, retention)
}

func (f *flawed) Release(ctx context.Context, key dedupe.Key, token string, again bool) error {
	switch f.flaw {
	case "releases nothing":
		return nil
	case "releases without a doubt":
		again = false
	}
	return f.Store.Release(ctx, key, token, again)
}

func (f *flawed) Doubt(ctx context.Context, key dedupe.Key, token string) error {
	if f.flaw == "doubts nothing" {
		return f.Store.Renew(ctx, key, token, long)
	}
	return f.Store.Doubt(ctx, key, token)
}

func (f *flawed) Unknowns(ctx context.Context, consumer string, limit int) ([]dedupe.Unknown, error) {
	switch f.flaw {
	case "one consumer for all":
		consumer = "mailer"
	case "lists all":
		limit = 1000
	}
	return f.Store.Unknowns(ctx, consumer, limit)
}

func (f *flawed) Resolve(ctx context.Context, key dedupe.Key, done bool, retention time.Duration) error {
	switch f.flaw {
	case "resolves nothing":
		return nil
	case "resolves as done":
		done = true
	}
	return f.Store.Resolve(ctx, key, done, retention)
}
