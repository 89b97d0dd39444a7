package mongo

import (
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/gooutbox/outbox/internal/servicetest"
)

func TestLintTellsOfJobsThatAreNotAsMeant(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{})
	least := bson.D{
		{Key: "sink", Value: "mail"},
		{Key: "state", Value: "ready"},
		{Key: "rank", Value: 1},
		{Key: "event_type", Value: "t"},
		{Key: "payload", Value: "x"},
	}
	later := time.Now().Add(time.Hour)
	for _, tc := range []struct {
		field string
		value any
		want  string // field and problem, or nothing
	}{
		{"headers", bson.D{{Key: "a", Value: "b"}, {Key: "c", Value: nil}}, ""},
		{"headers", bson.D{{Key: "ce_id", Value: "x"}}, "headers has a name that is reserved"},
		{"headers", bson.D{{Key: "n", Value: 7}}, "headers holds a value of type"},
		{"priority", "normal", ""},
		{"priority", nil, ""},
		{"priority", "urgent", "priority is none of"},
		{"priority", "high", "priority contradicts rank"},
		{"attempts", 11, "attempts are more than max_attempts"},
		{"attempts", 10, ""},
		{"event_type", strings.Repeat("t", 256), "event_type is too long"},
		{"not_before", later, "available_at is before not_before"},
		{"not_before", time.Unix(1, 0), ""},
		{"not_before", "2026-01-31T08:00:00Z", "not_before is of type"},
	} {
		if _, err := s.jobs.DeleteMany(t.Context(), bson.D{}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.jobs.InsertOne(t.Context(), changed(least, tc.field, tc.value)); err != nil {
			t.Fatal(err)
		}
		report, err := s.Lint(t.Context(), LintRequest{})
		if err != nil {
			t.Fatal(err)
		}
		var got string
		for _, f := range report.Findings {
			got += f.Field + " " + f.Problem
			if f.Fatal {
				t.Errorf("%s %v is fatal", tc.field, tc.value)
			}
		}
		if (tc.want == "") != (got == "") || !strings.HasPrefix(got, tc.want) || len(report.Findings) > 1 {
			t.Errorf("%s %v: found %+v, want %q", tc.field, tc.value, report.Findings, tc.want)
		}
	}
	for _, job := range mails(2) {
		enqueue(t, s, job)
	}
}
