package mongo

import (
	"errors"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
)

func TestPausesThatEndedAreCleanedAwayUncounted(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{})
	for name, d := range map[string]time.Duration{"over": time.Millisecond, "lasting": time.Hour, "endless": 0} {
		if err := s.Pause(t.Context(), core.Pause{PauseTarget: core.PauseTarget{Scope: core.PauseDomain, Name: name}, For: d}); err != nil {
			t.Fatal(err)
		}
	}
	s.jobs.UpdateOne(t.Context(), bson.D{{Key: "_id.name", Value: "over"}}, bson.A{op("$set", bson.D{{Key: "until", Value: "$$NOW"}})}) //nolint:errcheck // seen below
	if n, err := s.CleanJobs(t.Context()); n != 0 || err != nil {
		t.Errorf("counted %d, %v", n, err)
	}
	if n := count(t, s.jobs, bson.D{}); n != 2 {
		t.Errorf("%d pauses are left, want 2", n)
	}
	pauses, err := s.Pauses(t.Context())
	if err != nil || len(pauses) != 2 {
		t.Errorf("%+v, %v", pauses, err)
	}
}

func TestPausesAreNoJobs(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{})
	if err := s.Pause(t.Context(), core.Pause{PauseTarget: core.PauseTarget{Scope: core.PauseSink, Name: "mail"}}); err != nil {
		t.Fatal(err)
	}
	if got := claim(t, s, 5); len(got) != 0 {
		t.Errorf("claimed %d", len(got))
	}
	if _, found, err := s.NextDue(t.Context(), "mail", nil); found || err != nil {
		t.Errorf("a job is due: %v", err)
	}
}

func TestAStandaloneCantBeWatched(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.StandaloneDatabase(t), Config{})
	if err := s.Watch(t.Context(), func(core.Wake) {}); !errors.Is(err, core.ErrNoWatch) {
		t.Errorf("got %v", err)
	}
}

// A dropped collection must not leave a watch that is silent for ever.
func TestAWatchEndsWhenTheQueueIsDropped(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{ReadWait: 200 * time.Millisecond})
	began := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		first := true
		done <- s.Watch(t.Context(), func(core.Wake) {
			if first {
				first = false
				close(began)
			}
		})
	}()
	<-began
	if err := s.jobs.Drop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, errQueueGone) {
		t.Errorf("got %v", err)
	}
}

// Nothing but the stream's own calls may be sent while nothing happens.
func TestAnIdleWatchSendsOneCommandAWait(t *testing.T) {
	t.Parallel()
	var sent commands
	s := newStore(t, servicetest.Database(t, sent.options()), Config{ReadWait: 500 * time.Millisecond})
	began := make(chan struct{}, 10)
	done := make(chan error, 1)
	go func() { done <- s.Watch(t.Context(), func(core.Wake) { began <- struct{}{} }) }()
	<-began
	sent.take()
	started := time.Now()
	for {
		if n := names(sent.take()); len(n) > 0 {
			break
		}
	}
	var calls int
	for deadline := time.After(2 * time.Second); ; {
		select {
		case <-deadline:
			if limit := int(time.Since(started)/(500*time.Millisecond)) + 2; calls > limit {
				t.Errorf("%d commands in %s, want %d at most", calls, time.Since(started), limit)
			}
			return
		case err := <-done:
			t.Fatal(err)
		case <-time.Tick(50 * time.Millisecond):
			calls += len(sent.take())
		}
	}
}
