package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gooutbox/outbox/core"
)

func watchRules() []rule {
	return []rule{
		queueRule("EnqueueWakes", wakes(func(k *queueKit) func() {
			return func() { k.enqueueOne("b") }
		})),
		queueRule("DedupKeyedEnqueueWakes", wakes(func(k *queueKit) func() {
			return func() { k.enqueue(keyed("b", "key")) }
		})),
		queueRule("DelayedEnqueueWakes", wakes(func(k *queueKit) func() {
			j := job("later")
			j.NotBefore = k.now().Add(time.Hour)
			return func() { k.enqueue(j) }
		})),
		queueRule("RetryWakes", wakes(func(k *queueKit) func() {
			k.enqueueOne("a")
			got := k.claimOne("a")
			return func() { k.settle(core.Settlement{Kind: core.Retry, Failure: refusal, Delay: time.Minute}, got) }
		})),
		queueRule("GiveBackWakes", wakes(func(k *queueKit) func() {
			k.enqueueOne("a")
			got := k.claimOne("a")
			return func() { k.settle(core.Settlement{Kind: core.GiveBack}, got) }
		})),
		queueRule("RetryByHandWakes", wakes(func(k *queueKit) func() {
			k.enqueueOne("a")
			k.settle(core.Settlement{Kind: core.Fail, Failure: refusal}, k.claimOne("a"))
			return func() {
				if _, err := k.admin.Retry(k.ctx, core.JobFilter{Sink: sinkName}, core.Act{By: "me"}); err != nil {
					k.Error(err)
				}
			}
		}), administering),
		queueRule("RetryByHandOfAWaitingJobWakes", wakes(func(k *queueKit) func() {
			k.enqueueOne("a")
			k.settle(core.Settlement{Kind: core.Retry, Failure: refusal, Delay: time.Hour}, k.claimOne("a"))
			return func() { k.retry(1, core.JobFilter{State: core.JobReady}) }
		}), administering),
		queueRule("PauseWakes", wakes(func(k *queueKit) func() {
			return func() { k.pause(sinkTarget, time.Hour, "") }
		})),
		queueRule("ResumeWakes", wakes(func(k *queueKit) func() {
			k.pause(sinkTarget, time.Hour, "")
			return func() { k.resume(sinkTarget) }
		})),
		queueRule("ClaimDoesNotWake", sleeps(func(k *queueKit) func() {
			k.enqueue(numbered("j", 5, nil)...)
			return func() { k.claimBy(k.queue, core.ClaimRequest{}) }
		})),
		queueRule("SingleClaimDoesNotWake", sleeps(func(k *queueKit) func() {
			k.enqueueOne("a")
			return func() { k.claimBy(k.queue, core.ClaimRequest{Max: 1}) }
		})),
		queueRule("ExtendDoesNotWake", sleeps(func(k *queueKit) func() {
			k.enqueueOne("a")
			got := k.claimOne("a")
			return func() { k.extend(k.queue, got) }
		})),
		queueRule("EndsDoNotWake", sleeps(func(k *queueKit) func() {
			k.enqueue(numbered("j", 3, nil)...)
			got := k.claimBy(k.queue, core.ClaimRequest{})
			return func() {
				k.settle(core.Settlement{Kind: core.Complete, Receipt: "r"}, got[0])
				k.settle(core.Settlement{Kind: core.Fail, Failure: refusal}, got[1])
				k.settle(core.Settlement{Kind: core.EndUnknown, Failure: refusal}, got[2])
			}
		})),
		queueRule("DuplicateDoesNotWake", sleeps(func(k *queueKit) func() {
			k.enqueue(keyed("a", "key"))
			return func() { k.enqueue(keyed("b", "key")) }
		})),
		queueRule("AbortDoesNotWake", sleeps(func(k *queueKit) func() {
			return func() {
				err := k.store.InTransaction(k.ctx, func(ctx context.Context) error {
					if _, err := k.queue.Enqueue(ctx, job("a")); err != nil {
						return err
					}
					return errAbort
				})
				if !errors.Is(err, errAbort) {
					k.Errorf("a transaction that aborts: %v", err)
				}
			}
		}), transactions),
		queueRule("EndsWithItsContext", func(k *queueKit) {
			w := k.watch()
			w.barrier()
			w.stop()
		}),
	}
}

// watch is a Watch that runs, on the second handle.
type watch struct {
	k      *queueKit
	cancel context.CancelFunc
	done   chan error
	wakes  chan core.Wake
	once   sync.Once
	n      int
}

// barrierSink begins the names of the sinks whose jobs tell that a watch runs.
const barrierSink = "barrier-"

// watch skips the rule where the store can't watch.
func (k *queueKit) watch() *watch {
	ctx, cancel := context.WithCancel(k.ctx)
	w := &watch{k: k, cancel: cancel, done: make(chan error, 1), wakes: make(chan core.Wake, 10_000)}
	go func() { w.done <- k.second.Watch(ctx, func(wake core.Wake) { w.wakes <- wake }) }()
	k.Cleanup(w.stop)
	w.settle()
	return w
}

// settle returns when the watch runs: a job that was enqueued after it began
// wakes it.
func (w *watch) settle() {
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		w.enqueueBarrier()
		select {
		case <-w.wakes:
			w.barrier()
			return
		case err := <-w.done:
			w.done <- err
			if errors.Is(err, core.ErrNoWatch) {
				w.k.Skip("the store can't watch")
			}
			w.k.Fatalf("watching: %v", err)
		case <-again.C:
		}
	}
}

func (w *watch) enqueueBarrier() string {
	w.n++
	j := job(fmt.Sprintf("%s%d", barrierSink, w.n))
	j.Sink = j.ID
	w.k.enqueue(j)
	return j.Sink
}

// barrier returns the wakes that came before its own, without those of other
// barriers.
func (w *watch) barrier() []core.Wake {
	w.k.Helper()
	sink := w.enqueueBarrier()
	var before []core.Wake
	for {
		select {
		case wake := <-w.wakes:
			if wake.Sink == sink {
				return before
			}
			if len(wake.Sink) < len(barrierSink) || wake.Sink[:len(barrierSink)] != barrierSink {
				before = append(before, wake)
			}
		case err := <-w.done:
			w.done <- err
			w.k.Fatalf("watching: %v", err)
		case <-w.k.ctx.Done():
			w.k.Fatal("an enqueue woke nobody")
		}
	}
}

// stop ends the watch, and fails the test when that goes on.
func (w *watch) stop() {
	w.once.Do(func() {
		w.cancel()
		select {
		case err := <-w.done:
			w.k.Logf("Watch ended: %v", err)
		case <-time.After(w.k.h.Timeout / 10):
			w.k.Error("Watch goes on after the end of its context")
		}
	})
}

// wakes checks that what prepare returns wakes, for the sink or for any.
func wakes(prepare func(k *queueKit) func()) func(*queueKit) {
	return func(k *queueKit) {
		do := prepare(k)
		w := k.watch()
		do()
		got := w.barrier()
		if len(got) == 0 {
			k.Error("it woke nobody")
		}
		for _, wake := range got {
			if wake.Sink != "" && wake.Sink != sinkName {
				k.Errorf("it woke for the sink %q", wake.Sink)
			}
		}
	}
}

// sleeps checks that what prepare returns wakes nobody.
func sleeps(prepare func(k *queueKit) func()) func(*queueKit) {
	return func(k *queueKit) {
		do := prepare(k)
		w := k.watch()
		do()
		if got := w.barrier(); len(got) > 0 {
			k.Errorf("it woke %d times", len(got))
		}
	}
}
