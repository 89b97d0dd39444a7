package mongo

import (
	"errors"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
)

func parked(m *mark, e core.Event) core.Parked {
	return core.Parked{
		Entry: core.Entry{Event: e, Mark: m}, Sink: "events", Attempts: 2,
		Failure: core.Failure{Code: core.CodeRejected, Reason: "too large"},
	}
}

func jobsOf(t *testing.T, s *Store) []bson.Raw {
	t.Helper()
	found, err := s.jobs.Find(t.Context(), bson.D{})
	if err != nil {
		t.Fatal(err)
	}
	var jobs []bson.Raw
	if err := found.All(t.Context(), &jobs); err != nil {
		t.Fatal(err)
	}
	return jobs
}

func TestParkingTwiceChangesNothing(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *Store) {
		c := acquire(t, s, "kafka", "me")
		a, b := markAt(t, "a", 10, 1), markAt(t, "b", 10, 2)
		if err := c.Park(t.Context(), []core.Parked{parked(a, order("a"))}); err != nil {
			t.Fatal(err)
		}
		first := jobsOf(t, s)
		again := parked(a, order("a"))
		again.Attempts = 9
		if err := c.Park(t.Context(), []core.Parked{again, parked(b, order("b")), parked(b, order("b"))}); err != nil {
			t.Fatal(err)
		}
		jobs := jobsOf(t, s)
		if len(jobs) != 2 || jobs[0].String() != first[0].String() {
			t.Fatalf("jobs %v, want the first one as it was and a second", jobs)
		}
		if !c.isQueued(a.id) || !c.isQueued(b.id) || c.isQueued(valueOf(t, "c")) {
			t.Error("the cursor does not know its jobs")
		}
	})
}

// An id is told apart by its BSON type too.
func TestIDsOfDifferentTypesAreDifferentJobs(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{})
	c := acquire(t, s, "kafka", "me")
	object := bson.NewObjectID()
	text := markAt(t, object.Hex(), 10, 1)
	if err := c.Park(t.Context(), []core.Parked{parked(text, order(object.Hex()))}); err != nil {
		t.Fatal(err)
	}
	if c.isQueued(valueOf(t, object)) {
		t.Error("the ObjectId is taken for the text of the same digits")
	}
	if err := c.Park(t.Context(), []core.Parked{parked(markAt(t, object, 10, 2), order(object.Hex()))}); err != nil {
		t.Fatal(err)
	}
	if n := len(jobsOf(t, s)); n != 2 {
		t.Errorf("%d jobs, want 2", n)
	}
}

func TestTheNextHolderKnowsTheJobs(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *Store) {
		s.cfg.Margin = 100 * 1e9
		c := acquire(t, s, "kafka", "me")
		old, near := markAt(t, "old", 100, 0), markAt(t, "near", 950, 0)
		if err := c.Park(t.Context(), []core.Parked{parked(old, order("old")), parked(near, order("near"))}); err != nil {
			t.Fatal(err)
		}
		save(t, c, markAt(t, "b", 1000, 0))
		if err := c.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		next := acquire(t, s, "kafka", "next")
		if !next.isQueued(near.id) {
			t.Error("a job within the margin is not known")
		}
		if next.isQueued(old.id) {
			t.Error("a job far behind the position was loaded")
		}
		// A recovery reads from further back.
		if err := next.loadJobs(t.Context(), bson.Timestamp{T: 100}); err != nil {
			t.Fatal(err)
		}
		if !next.isQueued(old.id) {
			t.Error("a job behind the start of a recovery is not known")
		}
		// So does a scan that was cut short.
		setCursor(t, s, "kafka", bson.D{{Key: "scan", Value: scanState{At: bson.Timestamp{T: 150}}}})
		if scanning := acquire(t, s, "kafka", "next"); !scanning.isQueued(old.id) {
			t.Error("a job behind the start of the scan is not known")
		}
	})
}

// The fence and the jobs are one transaction: when it fails neither is there.
func TestAParkThatFailsLeavesNoJob(t *testing.T) {
	t.Parallel()
	db := faulty(t)
	s := newStore(t, db, Config{})
	c := acquire(t, s, "kafka", "me")
	failNext(t, db, "commitTransaction", bson.E{Key: "errorCode", Value: 8000})
	m := markAt(t, "a", 10, 1)
	expires := c.Expires()
	if err := c.Park(t.Context(), []core.Parked{parked(m, order("a"))}); err == nil {
		t.Fatal("no error")
	}
	if !c.Expires().Equal(expires) {
		t.Error("a write that was rolled back extended the lease")
	}
	if n := len(jobsOf(t, s)); n != 0 || c.isQueued(m.id) {
		t.Errorf("%d jobs were written", n)
	}
}

// A retry after a lost answer, or a conflict, must not change what is stored.
func TestAParkWhoseCommitIsAnsweredLateIsDone(t *testing.T) {
	t.Parallel()
	db := faulty(t)
	s := newStore(t, db, Config{})
	c := acquire(t, s, "kafka", "me")
	failNext(t, db, "commitTransaction", bson.E{Key: "closeConnection", Value: true})
	if err := c.Park(t.Context(), []core.Parked{parked(markAt(t, "a", 10, 1), order("a"))}); err != nil {
		t.Fatal(err)
	}
	if n := len(jobsOf(t, s)); n != 1 {
		t.Errorf("%d jobs, want 1", n)
	}
}

func TestADocumentThatIsNoEventIsKeptAsItIs(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *Store) {
		c := acquire(t, s, "kafka", "me")
		m := markAt(t, "bad", 10, 1)
		m.raw = marshal(t, bson.D{{Key: "_id", Value: "bad"}, {Key: "a.b", Value: bson.D{{Key: "$x", Value: 1}}}, {Key: "$y", Value: int64(1)}})
		p := parked(m, core.Event{ID: "bad"})
		p.Failure.Code = core.CodeUndecodable
		if err := c.Park(t.Context(), []core.Parked{p}); err != nil {
			t.Fatal(err)
		}
		job := jobsOf(t, s)[0]
		if got := job.Lookup("document").Document(); got.String() != m.raw.String() {
			t.Errorf("kept %s, want %s", got, m.raw)
		}
	})
}

func TestWhatIsTooLargeToBeCopiedIsReferredTo(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{})
	c := acquire(t, s, "kafka", "me")
	big := order("big")
	big.Payload = make([]byte, maxDocumentBytes)
	deep := markAt(t, "deep", 10, 2)
	deep.raw = nested(t, 179) // one more than the server takes, inside a job
	if err := c.Park(t.Context(), []core.Parked{parked(markAt(t, "big", 10, 1), big)}); err != nil {
		t.Fatal(err)
	}
	if err := c.Park(t.Context(), []core.Parked{parked(deep, core.Event{ID: "deep"})}); err != nil {
		t.Fatal(err)
	}
	jobs := jobsOf(t, s)
	if len(jobs) != 2 {
		t.Fatalf("%d jobs, want 2", len(jobs))
	}
	for _, job := range jobs {
		if !job.Lookup("payload").IsZero() || !job.Lookup("document").IsZero() || !job.Lookup("reference").Equal(job.Lookup("_id", "event")) {
			t.Errorf("job %s has no reference alone", job.Lookup("_id"))
		}
		if job.Lookup("failure", "code").StringValue() != core.CodeRejected {
			t.Errorf("the failure is missing in %s", job)
		}
	}
}

func nested(t *testing.T, depth int) bson.Raw {
	t.Helper()
	doc := bson.D{{Key: "x", Value: 1}}
	for range depth {
		doc = bson.D{{Key: "x", Value: doc}}
	}
	return marshal(t, doc)
}

func TestReasonsAreCutBetweenCharacters(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", core.MaxReasonBytes)
	if got := cutReason("x" + long); len(got) > core.MaxReasonBytes || !strings.HasPrefix(got, "xé") || strings.Contains(got, "\uFFFD") {
		t.Errorf("cut to %d bytes: %q…", len(got), got[:10])
	}
	if got := cutReason("short"); got != "short" {
		t.Errorf("got %q", got)
	}
}

func TestAJobIsSealedLikeItsEvent(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{Codec: reverse{}})
	c := acquire(t, s, "kafka", "me")
	e := order("a")
	e.Payload = []byte("abc")
	if err := c.Park(t.Context(), []core.Parked{parked(markAt(t, "a", 10, 1), e)}); err != nil {
		t.Fatal(err)
	}
	job := jobsOf(t, s)[0]
	if _, data := job.Lookup("payload").Binary(); string(data) != "cba" || job.Lookup("codec").StringValue() != "reverse" {
		t.Errorf("stored %q", data)
	}
}

func TestAReplacedHolderCantParkOnAStandaloneEither(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.StandaloneDatabase(t), Config{AllowNoTransaction: true})
	old := acquire(t, s, "kafka", "old")
	setCursor(t, s, "kafka", bson.D{{Key: "owner", Value: "new"}})
	if err := old.Park(t.Context(), []core.Parked{parked(markAt(t, "a", 10, 1), order("a"))}); !errors.Is(err, core.ErrFenced) {
		t.Errorf("got %v, want ErrFenced", err)
	}
	if n := len(jobsOf(t, s)); n != 0 {
		t.Errorf("%d jobs", n)
	}
}
