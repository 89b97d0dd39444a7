package mongo

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
)

func TestAJobIsLentSettledAndKept(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *Store) {
		receipts := enqueue(t, s, mail("a"), mail("b"), mail("c"))
		for n := range 2 {
			claimed := claim(t, s, n+1)
			if len(claimed) != n+1 {
				t.Fatalf("claimed %d, want %d", len(claimed), n+1)
			}
			for i, c := range claimed {
				if c.ID != receipts[n+i].ID || c.Lease.Event.ID != c.ID || c.Lease.Attempt != 1 || c.Err != nil {
					t.Errorf("claimed %+v", c)
				}
				if d := time.Since(c.ClaimedAt); d < -time.Minute || d > time.Minute || c.AvailableAt.After(c.ClaimedAt.Add(time.Second)) {
					t.Errorf("claimed at %s, available at %s", c.ClaimedAt, c.AvailableAt)
				}
			}
			if lost := settleAll(t, s, core.Settlement{Kind: core.Complete, Receipt: "ok"}, claimed...); lost != 0 {
				t.Errorf("%d lost", lost)
			}
			if job := jobOf(t, s, claimed[0]); job.Lookup("result").StringValue() != "ok" || !job.Lookup("payload").IsZero() {
				t.Errorf("kept %s", job)
			}
		}
		if more := claim(t, s, 5); len(more) != 0 {
			t.Errorf("%d more", len(more))
		}
	})
}

func TestHigherClassesGoFirstAndTenantsTakeTurns(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{})
	var jobs []core.Job
	add := func(name, tenant string, p core.Priority) {
		j := mail(name)
		j.Tenant, j.Priority = tenant, p
		jobs = append(jobs, j)
	}
	for _, name := range []string{"a1", "a2", "a3", "a4", "a5", "a6"} {
		add(name, "a", core.Normal)
	}
	add("b1", "b", core.Normal)
	add("b0", "b", core.High)
	add("c1", "c", core.Low)
	add("n1", "", core.Normal)
	enqueue(t, s, jobs...)
	got := payloads(claimAs(t, s, core.ClaimRequest{Max: 7, Tenants: []string{"", "a", "b", "c"}}))
	if want := []string{"b0", "n1", "a1", "b1", "a2", "a3", "a4"}; !slices.Equal(got, want) {
		t.Errorf("claimed %v, want %v", got, want)
	}
	got = payloads(claimAs(t, s, core.ClaimRequest{Max: 7, Tenants: []string{"a"}, FromRank: 1}))
	if want := []string{"a5", "a6"}; !slices.Equal(got, want) {
		t.Errorf("claimed %v, want %v", got, want)
	}
}

// What a claim examines does not grow with what is kept.
func TestAClaimExaminesLittleMoreThanItTakes(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{})
	var jobs []core.Job
	for i := range 3000 {
		j := mail(fmt.Sprint(i))
		j.Tenant = []string{"", "a", "b"}[i%3]
		j.Priority = core.Priority(i/3%3 - 1)
		if i%2 == 0 {
			j.NotBefore = time.Now().Add(time.Hour)
		}
		jobs = append(jobs, j)
	}
	enqueue(t, s, jobs...)
	for range 2 {
		settleAll(t, s, core.Settlement{Kind: core.Complete}, claim(t, s, 400)...)
	}
	claim(t, s, 100)
	const size = 50
	keys := func(name string, q query, hint bool) {
		t.Helper()
		command := bson.D{
			{Key: "find", Value: s.jobs.Name()}, {Key: "filter", Value: q.filter()}, {Key: "sort", Value: claimOrder}, {Key: "limit", Value: size},
		}
		if hint {
			command = append(command, bson.E{Key: "hint", Value: q.hint()})
		}
		if n, docs, plan := scanned(t, s, command); n > size+10 || docs > size {
			t.Errorf("%s: %d keys and %d documents for %d jobs: %s", name, n, docs, size, plan.Lookup("queryPlanner", "winningPlan"))
		}
	}
	for _, tenants := range [][]string{nil, {""}, {"a"}} {
		for from := range 3 {
			q := query{key: keyOf(core.ClaimRequest{Sink: "mail", Tenants: tenants, FromRank: from}, 0)}
			keys(fmt.Sprintf("tenants %q from rank %d", tenants, from), q, true)
			keys(fmt.Sprintf("tenants %q from rank %d without a hint", tenants, from), q, false)
			found, _, err := s.find(t.Context(), q, 10, false)
			if err != nil || len(found) != 10 {
				t.Fatalf("found %d, %v", len(found), err)
			}
			s.queue.note(q, found, 10, 0, 0)
			if q = s.queue.query(q.key); !q.narrow() {
				t.Fatal("no place is known")
			}
			keys(fmt.Sprintf("tenants %q from rank %d at a place", tenants, from), q, true)
		}
	}
	n, docs, plan := scanned(t, s, bson.D{
		{Key: "findAndModify", Value: s.jobs.Name()},
		{Key: "query", Value: query{key: keyOf(core.ClaimRequest{Sink: "mail"}, 0)}.filter()},
		{Key: "sort", Value: claimOrder},
		{Key: "update", Value: lending(core.ClaimRequest{Lease: time.Minute}, newToken())},
		{Key: "hint", Value: readyIndex},
	})
	if n > 2 || docs > 1 {
		t.Errorf("a claim of one: %d keys, %d documents: %s", n, docs, plan)
	}
}

func TestQueueReadsDoNotGrowWithTheQueue(t *testing.T) {
	t.Parallel()
	var sent commands
	s := newStore(t, servicetest.Database(t, sent.options()), Config{})
	jobs := mails(2000)
	for i := range jobs {
		jobs[i].Tenant = []string{"", "a", "b", "c"}[i%4]
		jobs[i].NotBefore = time.Now().Add(time.Hour)
	}
	enqueue(t, s, jobs...)
	claim(t, s, 10)
	for name, run := range map[string]func() error{
		"tenants": func() error { _, err := s.Tenants(t.Context(), "mail", "", 100); return err },
		"next due": func() error {
			in, found, err := s.NextDue(t.Context(), "mail", nil)
			if !found || in < 50*time.Minute || in > time.Hour {
				t.Errorf("next due in %s, %t", in, found)
			}
			return err
		},
		"next due of tenants": func() error { _, _, err := s.NextDue(t.Context(), "mail", []string{"", "b"}); return err },
		"take back":           func() error { _, err := s.TakeBack(t.Context(), core.TakeBackRequest{}); return err },
		"clean":               func() error { _, err := s.CleanJobs(t.Context()); return err },
		"pauses":              func() error { _, err := s.Pauses(t.Context()); return err },
	} {
		sent.take()
		if err := run(); err != nil {
			t.Fatal(err)
		}
		for _, e := range sent.take() {
			if e.CommandName == "getMore" {
				t.Errorf("%s needs a second batch", name)
				continue
			}
			var command bson.D
			for _, field := range []string{e.CommandName, "filter", "pipeline", "cursor", "sort", "limit", "hint", "projection", "deletes"} {
				if v := e.Command.Lookup(field); !v.IsZero() {
					command = append(command, bson.E{Key: field, Value: v})
				}
			}
			if n, docs, plan := scanned(t, s, command); n > 30 || docs > 30 {
				t.Errorf("%s: %d keys and %d documents: %s", name, n, docs, plan)
			}
		}
	}
}

func TestClaimsTakeFewRoundTrips(t *testing.T) {
	t.Parallel()
	var sent commands
	s := newStore(t, servicetest.Database(t, sent.options()), Config{})
	jobs := mails(200)
	for i := range jobs {
		jobs[i].Tenant = []string{"a", "b"}[i%2]
	}
	enqueue(t, s, jobs...)
	claim(t, s, 2) // asks for the server's time once
	for _, c := range []struct {
		name string
		req  core.ClaimRequest
		want []string
	}{
		{"one", core.ClaimRequest{Max: 1}, []string{"findAndModify"}},
		{"one of a tenant", core.ClaimRequest{Max: 1, Tenants: []string{"a"}}, []string{"findAndModify"}},
		{"many", core.ClaimRequest{Max: 40}, []string{"find", "update"}},
		{"spread", core.ClaimRequest{Max: 10, Spread: 10}, []string{"find", "update", "find"}},
		{"in turns", core.ClaimRequest{Max: 10, Tenants: []string{"a", "b"}}, []string{"aggregate", "update", "find"}},
	} {
		sent.take()
		claimed := claimAs(t, s, c.req)
		if got := names(sent.take()); !slices.Equal(got, c.want) || len(claimed) != c.req.Max {
			t.Errorf("%s: claimed %d by %v, want %d by %v", c.name, len(claimed), got, c.req.Max, c.want)
		}
		sent.take()
		if _, err := s.Extend(t.Context(), claimed, time.Minute); err != nil {
			t.Fatal(err)
		}
		if got := names(sent.take()); !slices.Equal(got, []string{"update"}) {
			t.Errorf("%s: extended by %v", c.name, got)
		}
	}
}

// A write that the majority did not acknowledge is made all the same, and comes
// with the count of what it changed.
func TestAClaimThatTheMajorityDidNotAcknowledgeIsNone(t *testing.T) {
	t.Parallel()
	db := faulty(t)
	s := newStore(t, db, Config{})
	enqueue(t, s, mails(3)...)
	for _, c := range []struct {
		command string
		max     int
	}{{"findAndModify", 1}, {"update", 3}} {
		failNext(t, db, c.command, notReplicated())
		claimed, err := s.Claim(t.Context(), core.ClaimRequest{Sink: "mail", Max: c.max})
		if err == nil || claimed != nil {
			t.Errorf("%s: claimed %d, %v", c.command, len(claimed), err)
		}
		if n := count(t, s.jobs, bson.D{{Key: "state", Value: "ready"}}); n != 3 {
			t.Errorf("%s: %d jobs are ready, want all", c.command, n)
		}
	}
	if got := claim(t, s, 5); len(got) != 3 || got[0].Lease.Attempt != 1 || got[0].Lease.Redelivered {
		t.Errorf("claimed %d afterwards: %+v", len(got), got[0])
	}
}

// Workers with clients of their own claim, settle and give back side by side.
func TestNoJobIsHeldTwice(t *testing.T) {
	t.Parallel()
	db := servicetest.Database(t)
	s := newStore(t, db, Config{})
	const total, workers = 600, 4
	enqueue(t, s, mails(total)...)
	var mu sync.Mutex
	held, done := map[string]bool{}, 0
	var wg sync.WaitGroup
	for w := range workers {
		worker, err := New(servicetest.Mongo(t).Database(db.Name()), Config{})
		if err != nil {
			t.Fatal(err)
		}
		random := rand.New(rand.NewPCG(1, uint64(w)))
		wg.Go(func() {
			for !t.Failed() {
				mu.Lock()
				over := done == total
				mu.Unlock()
				if over {
					return
				}
				claimed, err := worker.Claim(t.Context(), core.ClaimRequest{Sink: "mail", Max: 1 + random.IntN(20), Spread: random.IntN(40)})
				if err != nil {
					t.Error(err)
					return
				}
				var all []core.Settlement
				mu.Lock()
				for _, c := range claimed {
					if held[c.ID] {
						t.Errorf("job %s is held twice", c.ID)
					}
					held[c.ID] = true
					kind := core.Complete
					if random.IntN(4) == 0 {
						kind = core.GiveBack
					}
					all = append(all, core.Settlement{Job: c, Kind: kind})
				}
				for _, one := range all {
					delete(held, one.Job.ID) // from here on another may have it
					if one.Kind == core.Complete {
						done++
					}
				}
				mu.Unlock()
				if lost, err := worker.Settle(t.Context(), all); err != nil || len(lost) > 0 {
					t.Errorf("settling: %d lost, %v", len(lost), err)
				}
			}
		})
	}
	wg.Wait()
	if n := count(t, s.jobs, bson.D{{Key: "state", Value: "completed"}, {Key: "attempts", Value: 1}}); n != total {
		t.Errorf("%d jobs are completed in one attempt, want %d", n, total)
	}
}

// Reads go on from where claims have come to, and must miss nothing.
func TestWhatComesBeforeThePlaceOfClaimsIsFound(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{})
	other, err := New(s.db, Config{})
	if err != nil {
		t.Fatal(err)
	}
	s.queue.fresh = time.Hour // no read begins at the head for want of a recent one
	enqueue(t, s, mails(30)...)
	early := claim(t, other, 2)
	claim(t, s, 5)
	if !s.queue.query(keyOf(core.ClaimRequest{Sink: "mail"}, 0)).narrow() {
		t.Fatal("no place is known")
	}
	// A higher class goes first at once, also one that another process enqueued.
	high := mail("high")
	high.Priority = core.High
	enqueue(t, other, high)
	if got := payloads(claim(t, s, 2)); !slices.Equal(got, []string{"high", "m-0007"}) {
		t.Errorf("claimed %v", got)
	}
	// What this process gives back too.
	mine := claim(t, s, 2)
	settleAll(t, s, core.Settlement{Kind: core.GiveBack}, mine...)
	if got := payloads(claim(t, s, 1)); !slices.Equal(got, []string{"m-0008"}) {
		t.Errorf("claimed %v", got)
	}
	// What another one gave back is found at the end, if not before.
	claim(t, s, 3)
	settleAll(t, other, core.Settlement{Kind: core.GiveBack}, early...)
	if got := payloads(claim(t, s, 50)); len(got) != 20 || !slices.Contains(got, "m-0000") || !slices.Contains(got, "m-0001") {
		t.Errorf("claimed %v", got)
	}
}

func TestClaimsWorkWithoutIndexes(t *testing.T) {
	t.Parallel()
	s, err := New(servicetest.Database(t), Config{AllowNoTransaction: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	enqueue(t, s, mails(10)...)
	for _, req := range []core.ClaimRequest{{Max: 1}, {Max: 3}, {Max: 2, Tenants: []string{"", "a"}}, {Max: 1, Tenants: []string{""}}} {
		if got := claimAs(t, s, req); len(got) != req.Max {
			t.Errorf("claimed %d, want %d", len(got), req.Max)
		}
	}
}

// As a producer in another language may write: see docs/layout.md.
func TestTheLeastForeignJobIsLent(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{})
	for _, extra := range []bson.D{
		nil,
		{{Key: "tenant", Value: ""}, {Key: "attempts", Value: 2.0}, {Key: "seq", Value: bson.Timestamp{}}},
		{{Key: "tenant", Value: nil}, {Key: "payload", Value: bson.D{{Key: "a", Value: 1}}}},
	} {
		doc := bson.D{{Key: "sink", Value: "mail"}, {Key: "state", Value: "ready"}, {Key: "rank", Value: 1}, {Key: "event_type", Value: "t"}}
		if len(extra) < 2 || extra[1].Key != "payload" {
			doc = append(doc, bson.E{Key: "payload", Value: "text"})
		}
		res, err := s.jobs.InsertOne(t.Context(), append(doc, extra...))
		if err != nil {
			t.Fatal(err)
		}
		claimed := claimAs(t, s, core.ClaimRequest{Max: 2, Tenants: []string{""}})
		if len(claimed) != 1 || claimed[0].Err != nil || claimed[0].ID != res.InsertedID.(bson.ObjectID).Hex() || claimed[0].MaxAttempts != core.DefaultMaxAttempts {
			t.Fatalf("claimed %+v", claimed)
		}
		settleAll(t, s, core.Settlement{Kind: core.Complete}, claimed...)
		if n, _ := wholeOf(jobOf(t, s, claimed[0]).Lookup("attempts")); n != int64(claimed[0].Lease.Attempt) {
			t.Errorf("%d attempts are stored after attempt %d", n, claimed[0].Lease.Attempt)
		}
	}
}

func TestAClaimThatMakesNoSenseIsRefused(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{})
	for _, req := range []core.ClaimRequest{{Max: 1}, {Sink: "mail"}, {Sink: "mail", Max: 1, Lease: time.Microsecond}} {
		if _, err := s.Claim(t.Context(), req); err == nil {
			t.Errorf("%+v is accepted", req)
		}
	}
}
