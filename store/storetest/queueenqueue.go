package storetest

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/gooutbox/outbox/core"
)

func enqueueRules() []rule {
	return []rule{
		queueRule("JobExistsWhenCommitted", func(k *queueKit) {
			k.enqueueOne("a")
			k.claim("a")
		}),
		queueRule("AbortLeavesNothing", func(k *queueKit) {
			err := k.store.InTransaction(k.ctx, func(ctx context.Context) error {
				if _, err := k.queue.Enqueue(ctx, job("a")); err != nil {
					return err
				}
				return errAbort
			})
			if !errors.Is(err, errAbort) {
				k.Fatalf("InTransaction: %v, want the function's error", err)
			}
			k.claim()
		}, transactions),
		queueRule("OpenTransactionIsNotSeen", func(k *queueKit) {
			err := k.store.InTransaction(k.ctx, func(ctx context.Context) error {
				if _, err := k.queue.Enqueue(ctx, job("a")); err != nil {
					return err
				}
				if got := k.claimBy(k.second, core.ClaimRequest{}); len(got) > 0 {
					k.Errorf("%v was claimed before its transaction committed", eventsOfClaims(got))
				}
				return nil
			})
			if err != nil {
				k.Fatal(err)
			}
			k.claim("a")
		}, transactions, writers),
		queueRule("OutsideIsRefused", func(k *queueKit) {
			if _, err := k.queue.Enqueue(k.ctx, job("stray")); !errors.Is(err, core.ErrNoTransaction) {
				k.Errorf("Enqueue outside a transaction: %v, want core.ErrNoTransaction", err)
			}
			k.claim()
		}, transactions),
		queueRule("AfterItsEndIsRefused", func(k *queueKit) {
			var kept context.Context
			err := k.store.InTransaction(k.ctx, func(ctx context.Context) error {
				kept = ctx //nolint:fatcontext // kept on purpose, to be misused
				_, err := k.queue.Enqueue(ctx, job("a"))
				return err
			})
			if err != nil {
				k.Fatal(err)
			}
			if _, err := k.queue.Enqueue(kept, job("stray")); !errors.Is(err, core.ErrNoTransaction) {
				k.Errorf("Enqueue after the transaction: %v, want core.ErrNoTransaction", err)
			}
			k.claim("a")
		}, transactions),
		queueRule("OfNothingIsNoError", func(k *queueKit) { k.enqueue() }),
		queueRule("EventAndJobAreOneTransaction", func(k *queueKit) {
			c := k.cursor()
			for _, id := range []string{"aborted", "committed"} {
				err := k.store.InTransaction(k.ctx, func(ctx context.Context) error {
					if _, err := k.queue.Enqueue(ctx, job(id)); err != nil {
						return err
					}
					if err := k.store.Append(ctx, event(id)); err != nil {
						return err
					}
					if id == "aborted" {
						return errAbort
					}
					return nil
				})
				if err != nil && !errors.Is(err, errAbort) {
					k.Fatal(err)
				}
			}
			k.claim("committed")
			k.expect(c, "committed")
		}, transactions),
		queueRule("ReceiptsAreInTheOrderOfTheJobs", checkReceipts),
		queueRule("IDsAreAssigned", checkJobIDs),
		queueRule("EventIDMayBeThatOfAnotherJob", func(k *queueKit) {
			other := job("a")
			other.Sink = "other"
			k.enqueue(job("a"), other)
			k.claim("a")
			if got := k.claimBy(k.queue, core.ClaimRequest{Sink: "other"}); len(got) != 1 {
				k.Errorf("%d jobs for the other sink, want 1", len(got))
			}
		}),
		queueRule("WholeJobIsKept", checkWholeJob),
		queueRule("DefaultsAreKept", func(k *queueKit) {
			k.enqueueOne("a")
			got := k.claimOne("a")
			if got.Priority != core.Normal || got.MaxAttempts != core.DefaultMaxAttempts {
				k.Errorf("priority %s and %d attempts, want the defaults", got.Priority, got.MaxAttempts)
			}
		}),
		queueRule("ManyJobsOfOneCall", func(k *queueKit) {
			const n = 700
			k.enqueue(numbered("j", n, nil)...)
			if got := len(k.claimBy(k.queue, core.ClaimRequest{Max: 2 * n})); got != n {
				k.Errorf("claimed %d jobs, want %d", got, n)
			}
		}),
	}
}

func checkReceipts(k *queueKit) {
	jobs := numbered("j", 10, nil)
	for i := range jobs {
		if i%3 == 0 {
			jobs[i].DedupKey = fmt.Sprintf("key-%d", i)
		}
	}
	receipts := k.enqueue(jobs...)
	claimed := map[string]string{}
	for _, c := range k.claimBy(k.queue, core.ClaimRequest{}) {
		claimed[c.Lease.Event.ID] = c.ID
	}
	for i, r := range receipts {
		if r.Duplicate || r.Mismatch || r.ID == "" || claimed[jobs[i].ID] != r.ID {
			k.Errorf("%s: receipt %+v, the job's id is %q", jobs[i].ID, r, claimed[jobs[i].ID])
		}
	}
}

var uuidV5 = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

func checkJobIDs(k *queueKit) {
	plain, keyed := job(""), job("")
	keyed.DedupKey = "key"
	jobs := []core.Job{plain, keyed}
	receipts := k.enqueue(jobs...)
	if jobs[0].ID != "" || jobs[1].ID != "" {
		k.Error("Enqueue wrote into the caller's jobs")
	}
	if !uuidV7.MatchString(receipts[0].ID) || !uuidV5.MatchString(receipts[1].ID) {
		k.Errorf("ids %v, want a UUIDv7 and, of the dedup key, a UUIDv5", idsOfReceipts(receipts))
	}
	for _, c := range k.claimBy(k.queue, core.ClaimRequest{}) {
		if c.Lease.Event.ID != c.ID {
			k.Errorf("the event of job %s has the id %q, want the job's", c.ID, c.Lease.Event.ID)
		}
	}
}

func checkWholeJob(k *queueKit) {
	j := core.Job{
		Event: full(), Sink: sinkName, Priority: core.High, DedupKey: "key",
		NotBefore: time.Now().Add(-time.Hour).Truncate(time.Millisecond), MaxAttempts: 3,
	}
	receipt := k.enqueue(j)[0]
	got := k.claimOne(j.ID)
	k.wantSame(got.Lease.Event, j.Event)
	if got.Err != nil || got.ID != receipt.ID || got.Sink != j.Sink || got.Priority != j.Priority || got.MaxAttempts != 3 {
		k.Errorf("claimed %+v", got)
	}
	if !got.AvailableAt.Equal(got.EnqueuedAt) {
		k.Errorf("available at %v, want when it was enqueued, %v", got.AvailableAt, got.EnqueuedAt)
	}
	if k.h.Job == nil {
		return
	}
	info := k.wantState(receipt.ID, core.JobActive)
	e := j.Event
	if info.EventID != e.ID || info.Aggregate != e.Aggregate || info.AggregateID != e.AggregateID || info.Type != e.Type ||
		info.Tenant != e.Tenant || info.CorrelationID != e.CorrelationID || info.Sink != j.Sink || info.Cursor != "" ||
		info.Priority != j.Priority || info.MaxAttempts != 3 || info.DedupKey != j.DedupKey ||
		info.PayloadBytes < len(e.Payload) {
		k.Errorf("the job is shown as %+v", info)
	}
}
