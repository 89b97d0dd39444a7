package storetest_test

import (
	"context"
	"errors"
	"reflect"
	"sync"

	"github.com/gooutbox/outbox/core"
)

// redriveFaults are wrong retries by hand.
var redriveFaults = map[string]queueFault{
	"RetryByHandKeepsTheAttempts": func(q *brokenQueue) {
		kept := map[string]int{}
		var mu sync.Mutex
		q.onRetry = func(ctx context.Context, f core.JobFilter, act core.Act) (int64, error) {
			before, _, err := q.Jobs(ctx, f, "", 0)
			if err != nil {
				return 0, err
			}
			n, err := q.Store.Retry(ctx, f, act)
			mu.Lock()
			defer mu.Unlock()
			for _, j := range before {
				if n > 0 && !act.DryRun {
					kept[j.ID] = j.Attempts
				}
			}
			return n, err
		}
		q.claiming(func(c *core.Claimed) {
			mu.Lock()
			defer mu.Unlock()
			c.Lease.Attempt += kept[c.ID]
		})
	},
	"RetryByHandLeavesWaitingJobs": func(q *brokenQueue) {
		q.onRetry = func(ctx context.Context, f core.JobFilter, act core.Act) (n int64, err error) {
			for _, state := range []core.JobState{core.JobFailed, core.JobUnknown} {
				if one := f; f.State == state || f.State == "" && !reflect.ValueOf(f).IsZero() {
					one.State = state
					some, failed := q.Store.Retry(ctx, one, act)
					n, err = n+some, errors.Join(err, failed)
				}
			}
			return n, err
		}
	},
	"RetryByHandHastensAll": func(q *brokenQueue) {
		q.onRetry = func(ctx context.Context, f core.JobFilter, act core.Act) (int64, error) {
			n, err := q.Store.Retry(ctx, f, act)
			if f.State == "" && f.IDs == nil {
				f.State = core.JobReady
				more, failed := q.Store.Retry(ctx, f, act)
				n, err = n+more, errors.Join(err, failed)
			}
			return n, err
		}
	},
	"RetryByHandIsHidden": func(q *brokenQueue) { q.claiming(func(c *core.Claimed) { c.Lease.Redriven = false }) },
}
