package storetest

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/gooutbox/outbox/core"
)

func jobValidationRules() []rule {
	refused := func(name, field string, limit func(Harness) int, spoil func(Harness, *core.Job)) rule {
		return queueRule(name, func(k *queueKit) {
			bad := job("bad")
			spoil(k.h, &bad)
			_, err := k.tryEnqueue(k.store, job("before"), bad)
			if !errors.Is(err, core.ErrInvalidJob) {
				k.Fatalf("Enqueue: %v, want core.ErrInvalidJob", err)
			}
			wantField(k.kit, err, field, limit(k.h))
			k.claim()
		})
	}
	none := func(Harness) int { return 0 }
	bytes := func(n int) func(Harness) int { return func(Harness) int { return n } }
	return []rule{
		refused("EmptySinkIsRefused", "Sink", none, func(_ Harness, j *core.Job) { j.Sink = "" }),
		refused("LongSinkIsRefused", "Sink", bytes(core.MaxNameBytes), func(_ Harness, j *core.Job) {
			j.Sink = strings.Repeat("s", core.MaxNameBytes+1)
		}),
		refused("EmptyTypeIsRefused", "Type", none, func(_ Harness, j *core.Job) { j.Type = "" }),
		refused("LongTenantIsRefused", "Tenant", bytes(core.MaxNameBytes), func(_ Harness, j *core.Job) {
			j.Tenant = strings.Repeat("t", core.MaxNameBytes+1)
		}),
		refused("LongDedupKeyIsRefused", "DedupKey", bytes(core.MaxKeyBytes), func(_ Harness, j *core.Job) {
			j.DedupKey = strings.Repeat("d", core.MaxKeyBytes+1)
		}),
		refused("InvalidDedupKeyIsRefused", "DedupKey", none, func(_ Harness, j *core.Job) { j.DedupKey = "a\xff" }),
		refused("PriorityIsChecked", "Priority", none, func(_ Harness, j *core.Job) { j.Priority = 2 }),
		refused("NegativeMaxAttemptsIsRefused", "MaxAttempts", none, func(_ Harness, j *core.Job) { j.MaxAttempts = -1 }),
		refused("HeaderLineBreakIsRefused", `Headers["x-a"]`, none, func(_ Harness, j *core.Job) {
			j.Headers = map[string]string{"x-a": "value\r\nx-b: other"}
		}),
		refused("TooLargeJobIsRefused", "Event", func(h Harness) int { return h.MaxEventBytes }, func(h Harness, j *core.Job) {
			j.Event = sized(h.MaxEventBytes + 1)
		}),
		queueRule("LargestJobIsStored", func(k *queueKit) {
			j := job("")
			j.Event = sized(k.h.MaxEventBytes)
			k.enqueue(j)
			if got := k.claimOne(j.ID); !slices.Equal(got.Lease.Event.Payload, j.Payload) {
				k.Errorf("%d bytes of payload came back as %d others", len(j.Payload), len(got.Lease.Event.Payload))
			}
		}),
		queueRule("NoAggregateIDIsNeeded", func(k *queueKit) {
			j := job("a")
			j.AggregateID = ""
			k.enqueue(j)
			k.claim("a")
		}),
		queueRule("AllProblemsAreNamedAtOnce", func(k *queueKit) {
			_, err := k.tryEnqueue(k.store, core.Job{MaxAttempts: -1})
			for _, field := range []string{"Sink", "Type", "MaxAttempts"} {
				wantField(k.kit, err, field, 0)
			}
		}),
		queueRule("RefusedJobLeavesTheTransactionUsable", func(k *queueKit) {
			err := k.store.InTransaction(k.ctx, func(ctx context.Context) error {
				if _, err := k.queue.Enqueue(ctx, job("with-it"), core.Job{}); err == nil {
					k.Error("an empty job was taken")
				}
				_, err := k.queue.Enqueue(ctx, job("a"))
				return err
			})
			if err != nil {
				k.Fatal(err)
			}
			k.claim("a")
		}, transactions),
	}
}
