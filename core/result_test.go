package core_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/gooutbox/outbox/core"
)

func TestResultOfReadsTheMark(t *testing.T) {
	t.Parallel()
	cause := errors.New("cause")
	for name, c := range map[string]struct {
		err   error
		want  core.Outcome
		after time.Duration
	}{
		"nil":          {nil, core.Delivered, 0},
		"plain":        {cause, core.Refused, 0},
		"rejected":     {core.MarkRejected(cause), core.Rejected, 0},
		"unavailable":  {core.MarkUnavailable(cause), core.Unavailable, 0},
		"throttled":    {core.MarkThrottled(cause, time.Minute), core.Throttled, time.Minute},
		"unknown":      {core.MarkUnknown(cause), core.Unknown, 0},
		"not tried":    {core.MarkNotAttempted(cause), core.NotAttempted, 0},
		"wrapped":      {fmt.Errorf("sending: %w", core.MarkRejected(cause)), core.Rejected, 0},
		"outer wins":   {core.MarkRejected(core.MarkUnknown(cause)), core.Rejected, 0},
		"deadline":     {fmt.Errorf("sending: %w", context.DeadlineExceeded), core.Unknown, 0},
		"marked ended": {core.MarkUnavailable(context.Canceled), core.Unavailable, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := core.ResultOf("", c.err)
			if got.Outcome != c.want || got.RetryAfter != c.after {
				t.Fatalf("got %v after %v, want %v after %v", got.Outcome, got.RetryAfter, c.want, c.after)
			}
			if c.err != nil && !errors.Is(got.Err, c.err) {
				t.Fatalf("the reason %v got lost: %v", c.err, got.Err)
			}
		})
	}
}

func TestMarksKeepNil(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		core.MarkRejected(nil), core.MarkUnavailable(nil), core.MarkThrottled(nil, 1), core.MarkUnknown(nil), core.MarkNotAttempted(nil),
	} {
		if err != nil {
			t.Fatalf("got %v", err)
		}
	}
}

func TestAForgottenAnswerIsNoDelivery(t *testing.T) {
	t.Parallel()
	var r core.Result
	if r.Outcome != core.NotAttempted {
		t.Fatalf("the zero result is %v", r.Outcome)
	}
}

func TestSinkFuncStopsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	sink := core.SinkFunc(func(context.Context, core.Lease) error {
		calls++
		cancel()
		return nil
	})
	got := sink.Deliver(ctx, make([]core.Lease, 3))
	if calls != 1 || got[0].Outcome != core.Delivered || got[1].Outcome != core.NotAttempted || got[2].Outcome != core.NotAttempted {
		t.Fatalf("%d calls, %v", calls, got)
	}
}

func TestOnlyANamedTenantOrDomainIsLessThanTheSink(t *testing.T) {
	t.Parallel()
	for target, all := range map[core.PauseTarget]bool{
		{}:                                           true,
		{Scope: core.PauseSink}:                      true,
		{Scope: core.PauseSink, Name: "mail"}:        true,
		{Scope: core.PauseTenant}:                    true,
		{Scope: "planet", Name: "mars"}:              true,
		{Scope: core.PauseTenant, Name: "acme"}:      false,
		{Scope: core.PauseDomain, Name: "a.example"}: false,
	} {
		r := core.Result{Outcome: core.Throttled, Throttles: target}
		if r.ThrottlesAll() != all {
			t.Errorf("%+v: %v", target, r.ThrottlesAll())
		}
	}
}
