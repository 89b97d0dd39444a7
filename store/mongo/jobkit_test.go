package mongo

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/gooutbox/outbox/core"
)

// mail is a valid job.
func mail(name string) core.Job {
	return core.Job{
		Event: core.Event{AggregateID: name, Type: "mail.wanted", Payload: []byte(name)},
		Sink:  "mail",
	}
}

func mails(n int) []core.Job {
	jobs := make([]core.Job, n)
	for i := range jobs {
		jobs[i] = mail(fmt.Sprintf("m-%04d", i))
	}
	return jobs
}

// enqueue commits jobs in a transaction of their own, or without one on a store
// that allows it.
func enqueue(t testing.TB, s *Store, jobs ...core.Job) []core.Receipt {
	t.Helper()
	var receipts []core.Receipt
	add := func(ctx context.Context) (err error) {
		receipts, err = s.Enqueue(ctx, jobs...)
		return err
	}
	var err error
	if s.cfg.AllowNoTransaction {
		err = add(t.Context())
	} else {
		err = s.InTransaction(t.Context(), add)
	}
	if err != nil {
		t.Fatal(err)
	}
	return receipts
}

// claim claims mails.
func claim(t testing.TB, s *Store, n int) []*core.Claimed {
	t.Helper()
	return claimAs(t, s, core.ClaimRequest{Max: n})
}

func claimAs(t testing.TB, s *Store, req core.ClaimRequest) []*core.Claimed {
	t.Helper()
	if req.Sink == "" {
		req.Sink = "mail"
	}
	claimed, err := s.Claim(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return claimed
}

// settleAll settles jobs alike and returns how many were lost.
func settleAll(t testing.TB, s *Store, one core.Settlement, jobs ...*core.Claimed) int {
	t.Helper()
	all := make([]core.Settlement, len(jobs))
	for i, job := range jobs {
		all[i] = one
		all[i].Job = job
	}
	lost, err := s.Settle(t.Context(), all)
	if err != nil {
		t.Fatal(err)
	}
	return len(lost)
}

// jobOf is the stored job of a claim.
func jobOf(t testing.TB, s *Store, c *core.Claimed) bson.Raw {
	t.Helper()
	return jobNamed(t, s, c.ID)
}

func jobNamed(t testing.TB, s *Store, name string) bson.Raw {
	t.Helper()
	raw, err := s.jobs.FindOne(t.Context(), bson.D{{Key: "_id", Value: op("$in", s.idsNamed(name))}}).Raw()
	if err != nil {
		t.Fatalf("reading job %s: %v", name, err)
	}
	return raw
}

func setJob(t testing.TB, s *Store, name string, set bson.D) {
	t.Helper()
	res, err := s.jobs.UpdateOne(t.Context(), bson.D{{Key: "_id", Value: op("$in", s.idsNamed(name))}}, bson.A{op("$set", set)})
	if err != nil || res.MatchedCount != 1 {
		t.Fatalf("changing job %s: %v, %v", name, res, err)
	}
}

// endLease makes the leases of jobs have ended so long ago.
func endLease(t testing.TB, s *Store, ago time.Duration, jobs ...*core.Claimed) {
	t.Helper()
	for _, job := range jobs {
		setJob(t, s, job.ID, bson.D{{Key: "lease_until", Value: fromNow(-ago)}})
	}
}

func payloads(claimed []*core.Claimed) []string {
	var all []string
	for _, c := range claimed {
		all = append(all, string(c.Lease.Event.Payload))
	}
	return all
}

// scanned are the index keys and documents that the server examined for a
// command.
func scanned(t testing.TB, s *Store, command bson.D) (keys, docs int64, plan bson.Raw) {
	t.Helper()
	raw, err := s.db.RunCommand(t.Context(), bson.D{{Key: "explain", Value: command}, {Key: "verbosity", Value: "executionStats"}}).Raw()
	if err != nil {
		t.Fatalf("explaining: %v", err)
	}
	var walkStats func(bson.Raw)
	walkStats = func(doc bson.Raw) {
		els := walk(doc)
		for els.next() {
			switch name := string(els.name); {
			case name == "totalKeysExamined":
				n, _ := wholeOf(els.value)
				keys += n
			case name == "totalDocsExamined":
				n, _ := wholeOf(els.value)
				docs += n
			case els.value.Type == bson.TypeEmbeddedDocument, els.value.Type == bson.TypeArray:
				walkStats(els.value.Value)
			}
		}
	}
	walkStats(raw)
	return keys, docs, raw
}

// commandHook runs something before a client sends a command.
type commandHook struct {
	mu      sync.Mutex
	command string
	run     func()
}

func (h *commandHook) options() *options.ClientOptions {
	return options.Client().SetMonitor(&event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		h.mu.Lock()
		run := h.run
		if run == nil || e.CommandName != h.command {
			h.mu.Unlock()
			return
		}
		h.run = nil
		h.mu.Unlock()
		run()
	}})
}

// before runs once before the next command of this name.
func (h *commandHook) before(command string, run func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.command, h.run = command, run
}
