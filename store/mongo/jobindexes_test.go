package mongo

import (
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
)

func TestAnotherRetentionIsAdopted(t *testing.T) {
	t.Parallel()
	db := servicetest.Database(t)
	kept := func(s *Store, name string) time.Duration {
		job := jobNamed(t, s, name)
		return job.Lookup("expire_at").Time().Sub(job.Lookup("finished_at").Time())
	}
	day := newStore(t, db, Config{})
	enqueue(t, day, mails(2)...)
	done, failed := claim(t, day, 1)[0], claim(t, day, 1)[0]
	settleAll(t, day, core.Settlement{Kind: core.Complete}, done)
	settleAll(t, day, core.Settlement{Kind: core.Fail}, failed)

	week := newStore(t, db, Config{CompletedRetention: 7 * 24 * time.Hour, FailedRetention: 30 * 24 * time.Hour})
	if got := kept(week, done.ID); got != 7*24*time.Hour {
		t.Errorf("a raised retention keeps what is completed for %s", got)
	}
	if got := kept(week, failed.ID); got != 30*24*time.Hour {
		t.Errorf("a raised retention keeps what failed for %s", got)
	}
	hour := newStore(t, db, Config{CompletedRetention: time.Hour, FailedRetention: time.Hour})
	if got := kept(hour, done.ID); got != 7*24*time.Hour {
		t.Errorf("a lowered retention keeps what was completed before for %s", got)
	}
	if n, err := hour.CleanJobs(t.Context()); n != 0 || err != nil {
		t.Errorf("a lowered retention removes %d jobs, %v", n, err)
	}
	enqueue(t, hour, mail("a"))
	again := claim(t, hour, 1)[0]
	settleAll(t, hour, core.Settlement{Kind: core.Complete}, again)
	if got := kept(hour, again.ID); got != time.Hour {
		t.Errorf("a lowered retention keeps what is completed now for %s", got)
	}
}

func TestTheTTLIsAdapted(t *testing.T) {
	t.Parallel()
	db := servicetest.Database(t)
	s, err := New(db, Config{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.jobs.Indexes().CreateOne(t.Context(), mongo.IndexModel{
		Keys: bson.D{{Key: "expire_at", Value: 1}},
		Options: options.Index().SetName("theirs").SetExpireAfterSeconds(3600).
			SetPartialFilterExpression(bson.D{{Key: "state", Value: "completed"}}),
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.EnsureIndexes(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	found, err := listIndexes(t.Context(), s.jobs)
	if err != nil {
		t.Fatal(err)
	}
	for _, spec := range found {
		if name, _ := spec.Lookup("name").StringValueOK(); name == "theirs" {
			if after, _ := wholeOf(spec.Lookup("expireAfterSeconds")); after != 0 {
				t.Errorf("it removes after %d s", after)
			}
			return
		}
	}
	t.Error("the index is gone")
}

func TestOnlyCompletedJobsAreRemovedByTTL(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{})
	found, err := listIndexes(t.Context(), s.jobs)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, spec := range found {
		if spec.Lookup("expireAfterSeconds").IsZero() {
			continue
		}
		n++
		if got := spec.Lookup("partialFilterExpression").String(); got != `{"state": "completed"}` {
			t.Errorf("a TTL index over %s", got)
		}
	}
	if n != 1 {
		t.Errorf("%d TTL indexes", n)
	}
}

func TestAJobIndexInTheWayIsToldWithTheCure(t *testing.T) {
	t.Parallel()
	s, err := New(servicetest.Database(t), Config{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.jobs.Indexes().CreateOne(t.Context(), mongo.IndexModel{
		Keys: bson.D{{Key: "x", Value: 1}}, Options: options.Index().SetName("outbox_ready"),
	})
	if err != nil {
		t.Fatal(err)
	}
	err = s.EnsureIndexes(t.Context())
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"outbox_ready", "jobs are claimed by it", `db.getCollection("outbox_jobs").dropIndex("outbox_ready")`} {
		if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q lacks %q, or is more than a line", err, want)
		}
	}
}
