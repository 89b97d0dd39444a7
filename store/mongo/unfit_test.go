package mongo

import (
	"errors"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
)

func createLog(t *testing.T, s *Store, options bson.D) {
	t.Helper()
	if err := s.db.RunCommand(t.Context(), append(bson.D{{Key: "create", Value: s.log.Name()}}, options...)).Err(); err != nil {
		t.Fatal(err)
	}
}

var unfitLogs = map[string]bson.D{
	"a view":                   {{Key: "viewOn", Value: "real"}, {Key: "pipeline", Value: bson.A{}}},
	"a time-series collection": {{Key: "timeseries", Value: bson.D{{Key: "timeField", Value: "occurred_at"}}}},
	"a capped collection":      {{Key: "capped", Value: true}, {Key: "size", Value: 1 << 20}},
}

func TestNoCursorIsAcquiredOnWhatIsNoLog(t *testing.T) {
	t.Parallel()
	for name, options := range unfitLogs {
		s, err := New(servicetest.Database(t), impatient)
		if err != nil {
			t.Fatal(err)
		}
		createLog(t, s, options)
		_, err = s.Acquire(t.Context(), core.AcquireRequest{Name: "kafka", Owner: "me"})
		if !errors.Is(err, ErrUnfitLog) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
		if n := count(t, s.cursors, bson.D{}); n != 0 {
			t.Errorf("%s: a cursor was made", name)
		}
	}
}

// The log is replaced while a term runs.
func TestALogThatBecomesNoneIsToldAndNotScanned(t *testing.T) {
	t.Parallel()
	for name, options := range unfitLogs {
		w := newWatched(t, servicetest.MongoURL(t), Config{})
		c := cursorOf(t, w.Store, core.Start{Now: true})
		appendIDs(t, w.Store, "a")
		readTo(t, c, "a")
		if err := w.log.Drop(t.Context()); err != nil {
			t.Fatal(err)
		}
		createLog(t, w.Store, options)
		if name == "a capped collection" {
			continue // a stream can read it
		}
		failures := 0
		for range 20 {
			b, err := c.Read(t.Context(), core.ReadLimit{})
			if len(b.Entries) > 0 {
				t.Fatalf("%s: read %v", name, idsIn(b.Entries))
			}
			if errors.Is(err, ErrUnfitLog) {
				failures++
			}
		}
		if failures < 15 {
			t.Errorf("%s: %d errors of 20", name, failures)
		}
		w.wantRecoveries(t, 0)
	}
}

func TestALogThatIsMadeCappedIsToldWithWhatToDo(t *testing.T) {
	t.Parallel()
	w := newWatched(t, servicetest.MongoURL(t), Config{})
	c := cursorOf(t, w.Store, core.Start{Now: true})
	appendIDs(t, w.Store, "a")
	readTo(t, c, "a")
	command := bson.D{{Key: "convertToCapped", Value: "outbox"}, {Key: "size", Value: 1 << 20}}
	if err := w.db.RunCommand(t.Context(), command).Err(); err != nil {
		t.Fatal(err)
	}
	var told error
	for range 10 {
		if _, told = c.Read(t.Context(), core.ReadLimit{}); told != nil {
			break
		}
	}
	if !errors.Is(told, ErrUnfitLog) || !strings.Contains(told.Error(), "capped") || !strings.Contains(told.Error(), "copy the documents") {
		t.Errorf("the error is %v", told)
	}
	if n := w.warnings(); n > 1 {
		t.Errorf("%d scans were begun", n)
	}
}

func TestACursorThatWasEditedByHandIsNamed(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{})
	for _, edit := range []bson.D{
		{{Key: "token", Value: "x"}},
		{{Key: "revision", Value: "x"}},
		{{Key: "position", Value: 5}},
		{{Key: "fruitless", Value: "x"}},
		{{Key: "scan", Value: bson.A{}}},
		{{Key: "settled", Value: bson.D{}}},
		{{Key: "lease_until", Value: "x"}},
		{{Key: "fence", Value: "x"}},
	} {
		c := acquire(t, s, "kafka", "me")
		setCursor(t, s, "kafka", edit)
		_, acquired := s.Acquire(t.Context(), core.AcquireRequest{Name: "kafka", Owner: "me"})
		_, lag := s.Lag(t.Context(), "kafka")
		_, cleaned := s.Clean(t.Context(), core.CleanRequest{Retention: 1})
		if edit[0].Key == "fence" || edit[0].Key == "lease_until" {
			lag, cleaned = acquired, acquired // an acquisition may write these anew
			if acquired == nil {
				continue
			}
		}
		for call, err := range map[string]error{"Acquire": acquired, "Lag": lag, "Clean": cleaned} {
			if err == nil || !strings.Contains(err.Error(), `cursor "kafka" in outbox_cursors`) || !strings.Contains(err.Error(), "delete it") {
				t.Errorf("%v: %s answers %v", edit, call, err)
			}
		}
		_ = c.Release(t.Context())
		if _, err := s.cursors.DeleteOne(t.Context(), bson.D{{Key: "_id", Value: "kafka"}}); err != nil {
			t.Fatal(err)
		}
	}
}
