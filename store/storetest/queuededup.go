package storetest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/gooutbox/outbox/core"
)

// keyed returns a job under a dedup key.
func keyed(id, key string) core.Job {
	j := job(id)
	j.DedupKey = key
	return j
}

func dedupRules() []rule {
	return []rule{
		queueRule("DuplicateIsTold", func(k *queueKit) {
			first := k.enqueue(keyed("a", "key"))[0]
			k.wantDuplicateReceipt(k.enqueue(keyed("b", "key"))[0], first, core.JobReady)
			k.claim("a")
		}),
		queueRule("OtherKeysAreOtherJobs", func(k *queueKit) {
			k.enqueue(keyed("a", "one"))
			if r := k.enqueue(keyed("b", "other"))[0]; r.Duplicate {
				k.Errorf("receipt %+v for another key", r)
			}
			k.claim("a", "b")
		}),
		queueRule("NoKeyIsNoDuplicate", func(k *queueKit) {
			k.enqueueOne("a")
			if r := k.enqueueOne("a"); r.Duplicate {
				k.Errorf("receipt %+v for a job without a key", r)
			}
			k.claim("a", "a")
		}),
		queueRule("DuplicateTellsActive", duplicateOf(core.JobActive, 0)),
		queueRule("DuplicateTellsCompleted", duplicateOf(core.JobCompleted, core.Complete)),
		queueRule("DuplicateTellsFailed", duplicateOf(core.JobFailed, core.Fail)),
		queueRule("DuplicateTellsUnknown", duplicateOf(core.JobUnknown, core.EndUnknown)),
		queueRule("DuplicateTellsRetried", duplicateOf(core.JobReady, core.Retry)),
		queueRule("DuplicateInOneCallIsTold", func(k *queueKit) {
			r := k.enqueue(keyed("a", "key"), job("b"), keyed("c", "key"))
			if r[0].Duplicate || r[1].Duplicate {
				k.Errorf("receipts %+v", r)
			}
			k.wantDuplicateReceipt(r[2], r[0], core.JobReady)
			k.wantDue("a", "b")
		}),
		queueRule("DuplicateInOneTransactionIsTold", func(k *queueKit) {
			runs := 0
			var first, second []core.Receipt
			err := k.store.InTransaction(k.ctx, func(ctx context.Context) (err error) {
				runs++
				if first, err = k.queue.Enqueue(ctx, keyed("a", "key")); err != nil {
					return err
				}
				second, err = k.queue.Enqueue(ctx, keyed("b", "key"), job("c"))
				return err
			})
			if err != nil || runs > 3 {
				k.Fatalf("%d runs, %v", runs, err)
			}
			k.wantDuplicateReceipt(second[0], first[0], core.JobReady)
			k.wantDue("a", "c")
		}, transactions),
		queueRule("DuplicateLeavesTheTransactionUsable", func(k *queueKit) {
			k.enqueue(keyed("a", "key"))
			err := k.store.InTransaction(k.ctx, func(ctx context.Context) error {
				if _, err := k.queue.Enqueue(ctx, keyed("b", "key")); err != nil {
					return err
				}
				_, err := k.queue.Enqueue(ctx, job("c"))
				return err
			})
			if err != nil {
				k.Fatal(err)
			}
			k.wantDue("a", "c")
		}),
		queueRule("TenantScopesTheKey", func(k *queueKit) {
			for _, tenant := range []string{"", "one", "other"} {
				j := keyed("of "+tenant, "key")
				j.Tenant = tenant
				if r := k.enqueue(j)[0]; r.Duplicate {
					k.Errorf("receipt %+v for tenant %q", r, tenant)
				}
				if r := k.enqueue(j)[0]; !r.Duplicate {
					k.Errorf("receipt %+v for tenant %q again", r, tenant)
				}
			}
			k.claim("of ", "of one", "of other")
		}),
		// A tenant and a key are not one text.
		queueRule("TenantAndKeyAreToldApart", func(k *queueKit) {
			for _, pair := range [][2]string{{"a", "bc"}, {"ab", "c"}, {"", "abc"}, {"a/b", "c"}, {"a", "b/c"}, {"a:b", "c"}, {"a", "b:c"}} {
				j := keyed(fmt.Sprintf("%q", pair), pair[1])
				j.Tenant = pair[0]
				if r := k.enqueue(j)[0]; r.Duplicate {
					k.Errorf("tenant %q, key %q is told as a duplicate", pair[0], pair[1])
				}
			}
		}),
		queueRule("AbortedJobHoldsNoKey", func(k *queueKit) {
			err := k.store.InTransaction(k.ctx, func(ctx context.Context) error {
				if _, err := k.queue.Enqueue(ctx, keyed("a", "key")); err != nil {
					return err
				}
				return errAbort
			})
			if err == nil {
				k.Fatal("the transaction committed")
			}
			if r := k.enqueue(keyed("b", "key"))[0]; r.Duplicate {
				k.Errorf("receipt %+v after the first transaction was aborted", r)
			}
			k.claim("b")
		}, transactions),
		queueRule("SameContentIsNoMismatch", func(k *queueKit) {
			j := core.Job{Event: full(), Sink: sinkName, DedupKey: "key"}
			j.ID, j.OccurredAt = "", time.Time{}
			for range 2 {
				if r := k.enqueue(j)[0]; r.Mismatch {
					k.Errorf("receipt %+v for the same content", r)
				}
			}
			k.settle(core.Settlement{Kind: core.Complete}, k.claimBy(k.queue, core.ClaimRequest{})...)
			if r := k.enqueue(j)[0]; !r.Duplicate || r.Mismatch {
				k.Errorf("receipt %+v for the content of a completed job", r)
			}
		}),
		queueRule("OtherContentIsAMismatch", func(k *queueKit) {
			first := keyed("a", "key")
			k.enqueue(first)
			k.wantMismatches(first)
		}),
		queueRule("OtherContentThanACompletedJobsIsAMismatch", func(k *queueKit) {
			first := keyed("a", "key")
			k.enqueue(first)
			k.settle(core.Settlement{Kind: core.Complete}, k.claimOne("a"))
			k.wantMismatches(first)
		}),
		queueRule("OtherContentInOneCallIsAMismatch", func(k *queueKit) {
			other := keyed("b", "key")
			other.Payload = []byte("another")
			if r := k.enqueue(keyed("a", "key"), other); r[0].Mismatch || !r[1].Duplicate || !r[1].Mismatch {
				k.Errorf("receipts %+v, want a mismatch of the second", r)
			}
		}),
		queueRule("CompletedJobWhoseTimeIsOverBlocksNothing", func(k *queueKit) {
			first := k.enqueue(keyed("a", "key"))[0]
			k.settle(core.Settlement{Kind: core.Complete}, k.claimOne("a"))
			info := k.info(first.ID)
			k.elapse(info.ExpireAt.Sub(info.FinishedAt) - time.Minute)
			k.wantDuplicateReceipt(k.enqueue(keyed("b", "key"))[0], first, core.JobCompleted)
			k.elapse(2 * time.Minute)
			other := keyed("c", "key")
			other.Payload = []byte("another")
			if r := k.enqueue(other)[0]; r.Duplicate || r.Mismatch || r.ID == "" {
				k.Errorf("receipt %+v after the time of the first", r)
			}
			got := k.claimOne("c")
			if string(got.Lease.Event.Payload) != "another" || got.Lease.Attempt != 1 {
				k.Errorf("claimed %+v, want the new job", got)
			}
		}, elapsing, inspecting),
		queueRule("ConcurrentWritersOfOneKeyGetOneJob", checkDedupRace),
	}
}

// wantDue is claim where the order doesn't matter: the ids are sorted.
func (k *queueKit) wantDue(events ...string) {
	k.Helper()
	got := sorted(eventsOfClaims(k.claimBy(k.queue, core.ClaimRequest{})))
	if fmt.Sprint(got) != fmt.Sprint(events) {
		k.Fatalf("claimed %v, want %v", got, events)
	}
}

func (k *queueKit) wantDuplicateReceipt(got, of core.Receipt, state core.JobState) {
	k.Helper()
	if !got.Duplicate || got.ID != of.ID || got.State != state {
		k.Errorf("receipt %+v, want a duplicate of %s, %s", got, of.ID, state)
	}
}

func (k *queueKit) wantMismatches(first core.Job) {
	k.Helper()
	for field, change := range map[string]func(*core.Job){
		"payload": func(j *core.Job) { j.Payload = []byte("another") },
		"type":    func(j *core.Job) { j.Type = "another" },
		"headers": func(j *core.Job) { j.Headers = map[string]string{"x-a": "b"} },
		"sink":    func(j *core.Job) { j.Sink = "another" },
	} {
		other := first
		change(&other)
		if r := k.enqueue(other)[0]; !r.Duplicate || !r.Mismatch {
			k.Errorf("receipt %+v for another %s, want a mismatch", r, field)
		}
	}
}

// duplicateOf checks what is told of a job in this state.
func duplicateOf(state core.JobState, kind core.SettleKind) func(*queueKit) {
	return func(k *queueKit) {
		first := k.enqueue(keyed("a", "key"))[0]
		if got := k.claimOne("a"); kind != 0 {
			k.settle(core.Settlement{Kind: kind, Failure: refusal, Delay: time.Hour}, got)
		}
		k.wantDuplicateReceipt(k.enqueue(keyed("b", "key"))[0], first, state)
		k.claim()
	}
}

// checkDedupRace: eight writers enqueue under fifty keys, each key once.
func checkDedupRace(k *queueKit) {
	const writers, keys = 8, 50
	var mu sync.Mutex
	fresh := map[string]int{}
	duplicates, runs := 0, 0
	var all sync.WaitGroup
	for w := range writers {
		store := k.store
		if w%2 == 1 {
			store = k.other
		}
		all.Go(func() {
			for i := range keys {
				key := fmt.Sprintf("key-%d", i)
				var receipts []core.Receipt
				err := store.InTransaction(k.ctx, func(ctx context.Context) (err error) {
					receipts, err = k.h.Queue(store).Enqueue(ctx, keyed(fmt.Sprintf("%s of %d", key, w), key))
					mu.Lock()
					runs++
					mu.Unlock()
					return err
				})
				if err != nil {
					k.Errorf("%s of writer %d: %v", key, w, err)
					return
				}
				mu.Lock()
				if receipts[0].Duplicate {
					duplicates++
				} else {
					fresh[key]++
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	k.Logf("%d runs for %d transactions", runs, writers*keys)
	for key, n := range fresh {
		if n != 1 {
			k.Errorf("%s was new to %d writers", key, n)
		}
	}
	if got := len(k.claimBy(k.queue, core.ClaimRequest{})); got != keys || len(fresh) != keys || duplicates != (writers-1)*keys {
		k.Errorf("%d jobs, %d keys told as new, %d as duplicates; want %d, %d, %d",
			got, len(fresh), duplicates, keys, keys, (writers-1)*keys)
	}
}
