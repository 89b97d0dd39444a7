package mongo

import (
	"errors"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
)

// An operator who named another database than was meant gets no empty answers,
// and leaves nothing there.
func TestWhereThereIsNoOutboxOperatorsAreTold(t *testing.T) {
	t.Parallel()
	s, err := New(servicetest.Database(t), Config{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, all := t.Context(), core.JobFilter{All: true}
	target := core.PauseTarget{Scope: core.PauseSink, Name: "mail"}
	calls := map[string]func() error{
		"Stats":        func() error { _, err := s.Stats(ctx); return err },
		"Job":          func() error { _, err := s.Job(ctx, "x"); return err },
		"Jobs":         func() error { _, _, err := s.Jobs(ctx, all, "", 1); return err },
		"Retry":        func() error { _, err := s.Retry(ctx, all, operator); return err },
		"Discard":      func() error { _, err := s.Discard(ctx, all, operator); return err },
		"PauseBy":      func() error { return s.PauseBy(ctx, core.Pause{PauseTarget: target}, operator) },
		"ResumeBy":     func() error { return s.ResumeBy(ctx, target, operator) },
		"ForgetCursor": func() error { return s.ForgetCursor(ctx, "kafka", operator) },
		"Acts":         func() error { _, err := s.Acts(ctx, 1); return err },
		"Explain":      func() error { _, err := s.Explain(ctx, "x"); return err },
		"Lint":         func() error { _, err := s.Lint(ctx, LintRequest{}); return err },
	}
	for name, call := range calls {
		if err := call(); !errors.Is(err, core.ErrNoOutbox) {
			t.Errorf("%s: %v, want core.ErrNoOutbox", name, err)
		}
	}
	if names, err := s.db.ListCollectionNames(ctx, bson.D{}); err != nil || len(names) != 0 {
		t.Errorf("collections %v, %v", names, err)
	}
	// Producers may be there before the first relay.
	if _, err := s.log.InsertOne(ctx, bson.D{{Key: "_id", Value: "x"}}); err != nil {
		t.Fatal(err)
	}
	for name, call := range calls {
		if err := call(); errors.Is(err, core.ErrNoOutbox) {
			t.Errorf("%s beside a log: %v", name, err)
		}
	}
}
