package memory_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/store/memory"
)

func appendOne(t *testing.T, s *memory.Store, id string) {
	t.Helper()
	err := s.InTransaction(t.Context(), func(ctx context.Context) error {
		return s.Append(ctx, core.Event{ID: id, AggregateID: "k", Type: "t"})
	})
	if err != nil {
		t.Fatal(err)
	}
}

func acquire(t *testing.T, s *memory.Store, owner string) core.Cursor {
	t.Helper()
	c, err := s.Acquire(t.Context(), core.AcquireRequest{Name: "c", Owner: owner})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestLeaseRunsOutByTheClockOfTheBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New(memory.Config{})
		first := acquire(t, s, "first")
		if want := time.Now().Add(core.DefaultCursorLease); !first.Expires().Equal(want) {
			t.Errorf("expires at %v, want %v", first.Expires(), want)
		}
		time.Sleep(core.DefaultCursorLease - time.Nanosecond)
		_, err := s.Acquire(t.Context(), core.AcquireRequest{Name: "c", Owner: "second"})
		if _, held := errors.AsType[*core.HeldError](err); !held {
			t.Fatalf("a nanosecond before the end of the lease: %v, want a HeldError", err)
		}
		time.Sleep(time.Nanosecond)
		acquire(t, s, "second")
		if err := first.Renew(t.Context()); !errors.Is(err, core.ErrFenced) {
			t.Errorf("renewing after a take-over: %v, want ErrFenced", err)
		}
	})
}

func TestIdleReadEndsByTheClockOfTheBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New(memory.Config{})
		c := acquire(t, s, "me")
		begin := time.Now()
		b, err := c.Read(t.Context(), core.ReadLimit{})
		if err != nil || len(b.Entries) != 0 || b.Reached == nil {
			t.Fatalf("idle read: %+v, %v", b, err)
		}
		if waited := time.Since(begin); waited != 5*time.Second {
			t.Errorf("waited %v, want 5s", waited)
		}
	})
}

func TestWaitingReadSeesACommitAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New(memory.Config{})
		c := acquire(t, s, "me")
		begin := time.Now()
		go func() {
			time.Sleep(time.Second)
			appendOne(t, s, "a")
		}()
		b, err := c.Read(t.Context(), core.ReadLimit{})
		if err != nil || len(b.Entries) != 1 || time.Since(begin) != time.Second {
			t.Errorf("read %d entries after %v, %v; want 1 after 1s", len(b.Entries), time.Since(begin), err)
		}
	})
}

func TestFaultKeepsAnOperationFromTakingEffect(t *testing.T) {
	boom := errors.New("boom")
	var fail string
	s := memory.New(memory.Config{Fault: func(op string) error {
		if op == fail {
			return boom
		}
		return nil
	}})
	fail = memory.OpCommit
	err := s.InTransaction(t.Context(), func(ctx context.Context) error {
		return s.Append(ctx, core.Event{AggregateID: "k", Type: "t"})
	})
	if !errors.Is(err, boom) {
		t.Errorf("commit: %v, want the fault", err)
	}
	c := acquire(t, s, "me")
	if lag, err := s.Lag(t.Context(), "c"); err != nil || lag.Events != 0 {
		t.Errorf("lag %+v, %v after a commit that failed, want none", lag, err)
	}
	fail = memory.OpRenew
	if err := c.Renew(t.Context()); !errors.Is(err, boom) {
		t.Errorf("renew: %v, want the fault", err)
	}
}

func TestLostAnswerLeavesTheEffect(t *testing.T) {
	boom := errors.New("boom")
	s := memory.New(memory.Config{Lost: func(op string) error {
		if op == memory.OpSave {
			return boom
		}
		return nil
	}})
	appendOne(t, s, "a")
	c := acquire(t, s, "me")
	b, err := c.Read(t.Context(), core.ReadLimit{})
	if err != nil {
		t.Fatal(err)
	}
	mark := b.Entries[0].Mark
	if err := c.Save(t.Context(), []core.Mark{mark}); !errors.Is(err, boom) {
		t.Errorf("save: %v, want the lost answer", err)
	}
	if got := acquire(t, s, "me").Term().Position; got != mark.Position() {
		t.Errorf("position %v after a save whose answer was lost, want %v", got, mark.Position())
	}
}

func TestMarkingCursorMarksWhatItSettled(t *testing.T) {
	s := memory.New(memory.Config{})
	appendOne(t, s, "a")
	appendOne(t, s, "b")
	c, err := s.Acquire(t.Context(), core.AcquireRequest{Name: "c", Owner: "me", Marking: true})
	if err != nil {
		t.Fatal(err)
	}
	b, err := c.Read(t.Context(), core.ReadLimit{})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Save(t.Context(), []core.Mark{b.Entries[0].Mark}); err != nil {
		t.Fatal(err)
	}
	if s.PublishedAt("a").IsZero() || !s.PublishedAt("b").IsZero() {
		t.Errorf("published: a %v, b %v; want a alone", s.PublishedAt("a"), s.PublishedAt("b"))
	}
}
