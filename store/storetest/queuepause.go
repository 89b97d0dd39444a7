package storetest

import (
	"fmt"
	"time"

	"github.com/gooutbox/outbox/core"
)

// endless is a pause until somebody resumes.
const endless = time.Duration(-1)

var sinkTarget = core.PauseTarget{Scope: core.PauseSink, Name: sinkName}

func pauseRules() []rule {
	return []rule{
		queueRule("IsListedForAll", func(k *queueKit) {
			k.pause(sinkTarget, time.Hour, "")
			p := k.wantPause(sinkTarget, time.Hour, "")
			if p.Reason != "reason of 1h0m0s" {
				k.Errorf("the reason is %q", p.Reason)
			}
		}),
		queueRule("TargetsAreApart", func(k *queueKit) {
			targets := []core.PauseTarget{
				sinkTarget,
				{Scope: core.PauseTenant, Name: sinkName},
				{Scope: core.PauseDomain, Name: sinkName},
				{Scope: core.PauseTenant, Name: "other"},
			}
			for i, target := range targets {
				k.pause(target, time.Duration(i+1)*time.Hour, "")
			}
			k.resume(targets[1])
			for i, want := range []time.Duration{time.Hour, 0, 3 * time.Hour, 4 * time.Hour} {
				k.wantPause(targets[i], want, "")
			}
		}),
		queueRule("EndsByItself", func(k *queueKit) {
			k.pause(sinkTarget, time.Hour, "")
			k.elapse(59 * time.Minute)
			k.wantPause(sinkTarget, time.Minute, "")
			k.elapse(2 * time.Minute)
			k.wantPause(sinkTarget, 0, "")
			k.pause(sinkTarget, time.Minute, "")
			k.wantPause(sinkTarget, time.Minute, "")
		}, elapsing),
		queueRule("LastsUntilResumed", func(k *queueKit) {
			k.pause(sinkTarget, endless, "me")
			if k.h.Elapse != nil {
				k.elapse(10_000 * time.Hour)
			}
			k.wantPause(sinkTarget, endless, "me")
			k.resume(sinkTarget)
			k.wantPause(sinkTarget, 0, "")
		}),
		queueRule("ResumeOfNoneIsNoError", func(k *queueKit) { k.resume(sinkTarget) }),
		queueRule("IsNeverShortened", func(k *queueKit) {
			for _, by := range []string{"", "me"} {
				k.pause(sinkTarget, time.Hour, by)
				k.pause(sinkTarget, time.Minute, by)
				k.wantPause(sinkTarget, time.Hour, by)
			}
		}),
		queueRule("IsLengthened", func(k *queueKit) {
			for _, by := range []string{"", "me"} {
				k.pause(sinkTarget, time.Minute, by)
				k.pause(sinkTarget, time.Hour, by)
				k.wantPause(sinkTarget, time.Hour, by)
				k.pause(sinkTarget, endless, by)
				k.wantPause(sinkTarget, endless, by)
				k.resume(sinkTarget)
			}
		}),
		queueRule("EndlessIsNeverShortened", func(k *queueKit) {
			for _, by := range []string{"", "me"} {
				k.pause(sinkTarget, endless, by)
				k.pause(sinkTarget, time.Hour, by)
				k.wantPause(sinkTarget, endless, by)
			}
		}),
		queueRule("OperatorsIsLeftBySinks", func(k *queueKit) {
			k.pause(sinkTarget, time.Minute, "me")
			k.pause(sinkTarget, time.Hour, "")
			k.pause(sinkTarget, endless, "")
			k.wantPause(sinkTarget, time.Minute, "me")
		}),
		queueRule("OperatorTakesOverASinks", func(k *queueKit) {
			k.pause(sinkTarget, time.Minute, "")
			k.pause(sinkTarget, time.Hour, "me")
			k.wantPause(sinkTarget, time.Hour, "me")
			k.pause(sinkTarget, 2*time.Hour, "")
			k.wantPause(sinkTarget, time.Hour, "me")
		}),
		queueRule("OperatorDoesNotShortenASinks", func(k *queueKit) {
			k.pause(sinkTarget, time.Hour, "")
			k.pause(sinkTarget, time.Minute, "me")
			k.wantPause(sinkTarget, time.Hour, "me")
		}),
		queueRule("EndedOneBindsNobody", func(k *queueKit) {
			k.pause(sinkTarget, time.Hour, "me")
			k.elapse(2 * time.Hour)
			k.pause(sinkTarget, time.Minute, "")
			k.wantPause(sinkTarget, time.Minute, "")
		}, elapsing),
	}
}

func (k *queueKit) pause(target core.PauseTarget, d time.Duration, by string) {
	k.Helper()
	p := core.Pause{PauseTarget: target, For: max(d, 0), By: by, Reason: fmt.Sprintf("reason of %v", d)}
	if err := k.queue.Pause(k.ctx, p); err != nil {
		k.Fatalf("pausing: %v", err)
	}
}

func (k *queueKit) resume(target core.PauseTarget) {
	k.Helper()
	if err := k.queue.Resume(k.ctx, target); err != nil {
		k.Fatalf("resuming: %v", err)
	}
}

// wantPause fails unless the target is paused for so long, as the other handle
// sees it; 0 is not at all.
func (k *queueKit) wantPause(target core.PauseTarget, left time.Duration, by string) core.Pause {
	k.Helper()
	all, err := k.second.Pauses(k.ctx)
	if err != nil {
		k.Fatalf("listing pauses: %v", err)
	}
	var found []core.Pause
	for _, p := range all {
		if p.PauseTarget == target {
			found = append(found, p)
		}
	}
	switch {
	case left == 0 && len(found) > 0:
		k.Fatalf("%v is paused: %+v", target, found)
	case left == 0:
		return core.Pause{}
	case len(found) != 1:
		k.Fatalf("%d pauses of %v, want 1", len(found), target)
	}
	got := found[0]
	if got.By != by || got.Until.IsZero() != (left == endless) {
		k.Errorf("paused by %q until %v, want by %q for %v", got.By, got.Until, by, left)
	}
	if left > 0 {
		if d := got.Until.Sub(k.now()); d > left || d < left-time.Minute {
			k.Errorf("paused for %v, want %v", d, left)
		}
	}
	return got
}
