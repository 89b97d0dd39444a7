package relay_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/relay"
	"github.com/gooutbox/outbox/store/memory"
)

func TestALeaseIsExtendedWhileItsJobIsDelivered(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.before = slow(10 * time.Minute)
		k.enqueue(jobs("j", 5)...)
		q := newLine(k.store)
		other := newScript(t)
		r := k.start(working(single, func(w *relay.Worker) { w.Timeout = time.Hour }), through(q))
		pass(time.Second)
		k.start(working(), func(c *relay.Config) { c.Sinks = map[string]core.Sink{"s": other} })
		pass(11 * time.Minute)
		k.counts("after", 0, 0, 5, 0)
		equal(t, "deliveries by the other", other.callCount(), 0)
		between(t, "commands that extended", time.Duration(q.count("extend")), 10*60/20-2, 10*60/20+2)
		r.stop()
	})
}

func TestALostLeaseCancelsItsCallAndNothingIsWrittenUnderIt(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		var cut, ended time.Time
		k.sink.before = func(ctx context.Context, _ []core.Lease) {
			<-ctx.Done()
			ended = time.Now()
		}
		id := k.enqueue(job("a"))[0]
		q := newLine(k.store)
		other := newScript(t)
		r := k.start(working(func(w *relay.Worker) { w.Timeout = time.Hour }), through(q))
		pass(25 * time.Second) // it was extended at 20
		q.sever()
		cut = time.Now()
		k.start(working(), func(c *relay.Config) { c.Sinks = map[string]core.Sink{"s": other} })
		pass(5 * time.Minute)
		between(t, "the call ended when its lease did", ended.Sub(cut), 54*time.Second, 56*time.Second)
		equalIDs(t, "delivered by the other", other.got(), "a")
		equal(t, "redelivered", other.of("a")[0].lease.Redelivered, true)
		equal(t, "state", k.info(id).State, core.JobCompleted)
		equal(t, "redeliveries", k.info(id).Redeliveries, 1)
		equal(t, "lines", k.log.with(slog.LevelWarn, "leases of jobs were lost"), 1)
		q.mend()
		r.stop()
	})
}

func TestALeaseThatAnotherHasIsToldByTheStore(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		var ended time.Duration
		began := time.Now()
		k.sink.before = func(ctx context.Context, _ []core.Lease) {
			<-ctx.Done()
			ended = time.Since(began)
		}
		k.enqueue(job("a"))
		stolen := &stealing{Queue: k.store}
		k.start(working(func(w *relay.Worker) { w.Timeout = time.Hour }), through(stolen))
		pass(time.Minute)
		between(t, "the call ended at the first extension", ended, 19*time.Second, 21*time.Second)
		equal(t, "lines", k.log.with(slog.LevelWarn, "leases of jobs were lost"), 1)
	})
}

// stealing is a queue whose leases are lost.
type stealing struct{ core.Queue }

func (q *stealing) Extend(_ context.Context, all []*core.Claimed, _ time.Duration) ([]*core.Claimed, error) {
	return all, nil
}

func TestAStaleWorkersResultChangesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		// The sink doesn't hear of the end of its context, like a process that was
		// frozen in its call.
		k.sink.before = func(context.Context, []core.Lease) { time.Sleep(3 * time.Minute) }
		k.sink.reply = func(core.Lease, int) core.Result { return outcome(core.Rejected) }
		id := k.enqueue(job("a"))[0]
		q := newLine(k.store)
		other := newScript(t)
		r := k.start(working(), through(q))
		pass(time.Second)
		q.sever()
		k.start(working(), func(c *relay.Config) { c.Sinks = map[string]core.Sink{"s": other} })
		pass(2 * time.Minute)
		equalIDs(t, "delivered by the other", other.got(), "a")
		q.mend()
		pass(5 * time.Minute)
		equal(t, "state", k.info(id).State, core.JobCompleted)
		equal(t, "attempts", k.info(id).Attempts, 1)
		r.stop()
	})
}

func TestResultsAreWrittenWhenTheStoreIsBack(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.enqueue(jobs("j", 20)...)
		k.faults.set(errDown, memory.OpSettle)
		r := k.start(working())
		pass(30 * time.Second)
		k.counts("while it is away", 0, 20, 0, 0)
		k.faults.set(nil, memory.OpSettle)
		pass(10 * time.Second)
		k.counts("after", 0, 0, 20, 0)
		equal(t, "deliveries", len(k.sink.got()), 20)
		equal(t, "lines of the trouble", k.log.with(slog.LevelWarn, "the store of the jobs fails"), 1)
		equal(t, "lines of its end", k.log.with(slog.LevelInfo, "the store of the jobs works again"), 1)
		r.stop()
	})
}

func TestResultsThatCanNotBeWrittenHoldUpDeliveries(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.enqueue(jobs("j", 10_000)...)
		k.faults.set(errDown, memory.OpSettle)
		r := k.start(working())
		pass(10 * time.Second)
		// maxUnsettled, a group that was put back meanwhile, and a call of each lane.
		between(t, "deliveries without a written result", time.Duration(len(k.sink.got())), 4000, 6000)
		k.faults.set(nil, memory.OpSettle)
		pass(20 * time.Second)
		equal(t, "deliveries", len(k.sink.got()), 10_000)
		r.stop()
	})
}

func TestADrainEndsCallsAndGivesBackTheRest(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.before = func(ctx context.Context, _ []core.Lease) {
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
				t.Error("the context of a call ended within the drain time")
			}
		}
		k.enqueue(jobs("j", 1000)...)
		r := k.start(working(single))
		pass(5050 * time.Millisecond)
		if r.worker().Ahead == 0 {
			t.Error("nothing is ahead")
		}
		began := time.Now()
		r.stop()
		between(t, "the drain took", time.Since(began), 0, 110*time.Millisecond)
		n := len(k.sink.got())
		k.counts("after", int64(1000-n), 0, int64(n), 0)
	})
}

func TestADrainCancelsCallsOfJobsAfterItsTime(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.before = func(ctx context.Context, _ []core.Lease) { <-ctx.Done() }
		k.sink.reply = func(core.Lease, int) core.Result { return outcome(core.Unknown) }
		id := k.enqueue(job("a", tries(1)))[0]
		r := k.start(working(), func(c *relay.Config) { c.Drain = 3 * time.Second })
		pass(time.Second)
		began := time.Now()
		r.stop()
		equal(t, "the drain took", time.Since(began), 3*time.Second)
		equal(t, "state", k.info(id).State, core.JobReady)
		equal(t, "attempts", k.info(id).Attempts, 0)
	})
}

func TestACallOfAJobThatIgnoresItsContextIsNamed(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		release := make(chan struct{})
		k.sink.before = func(context.Context, []core.Lease) { <-release }
		id := k.enqueue(job("a"))[0]
		r := k.start(working())
		pass(time.Second)
		err := r.end()
		if err == nil || !strings.Contains(err.Error(), `worker of sink "s": 1 calls did not end`) {
			t.Errorf("error: %v", err)
		}
		equal(t, "state", k.info(id).State, core.JobActive)
		close(release)
		pass(time.Second)
	})
}

func TestADrainWithTheStoreAwayTellsWhatIsNotWritten(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.enqueue(jobs("j", 3)...)
		k.faults.set(errDown, memory.OpSettle)
		r := k.start(working())
		pass(time.Second)
		began := time.Now()
		if err := r.end(); err == nil || !strings.Contains(err.Error(), "the results of 3 jobs could not be written") {
			t.Errorf("error: %v", err)
		}
		between(t, "the drain took", time.Since(began), 0, 40*time.Second)
	})
}

func TestARelayOfWorkersRunsAgainAfterItsEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		cfg := k.config()
		working()(&cfg)
		r, err := relay.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			k.enqueue(job(fmt.Sprint("j", i)))
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			if err := r.Run(ctx); err != nil {
				t.Error(err)
			}
			cancel()
			k.counts("after", 0, 0, int64(i+1), 0)
		}
	})
}

// process is a relay that can be killed: it stops where it stands, and nothing
// of it reaches the store any more.
type process struct {
	*running
	line *line
}

func (p *process) kill() {
	p.line.sever()
	p.cancel()
}

func (k *kit) process(sink core.Sink, edits ...func(*relay.Config)) *process {
	l := newLine(k.store)
	p := &process{line: l}
	all := append([]func(*relay.Config){working(single), through(l), func(c *relay.Config) {
		c.Sinks = map[string]core.Sink{"s": sink}
		c.Drain = time.Second
	}}, edits...)
	p.running = k.start(all...)
	return p
}

func TestAJobThatKillsItsProcessFailsAndTheOthersDoNot(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		ids := k.enqueue(jobs("j", 100)...)
		killer := k.enqueue(job("killer"))[0]
		late := k.enqueue(jobs("k", 100)...)
		var now atomic.Pointer[process]
		kills := 0
		for range 40 {
			sink := newScript(t)
			died := make(chan struct{})
			sink.before = func(ctx context.Context, leases []core.Lease) {
				select {
				case <-died:
					<-ctx.Done() // its process is gone
					return
				default:
				}
				time.Sleep(50 * time.Millisecond)
				if leases[0].Event.ID == "killer" {
					now.Load().line.sever()
					close(died)
					<-ctx.Done()
				}
			}
			p := k.process(sink)
			now.Store(p)
			select {
			case <-died:
				kills++
			case <-time.After(3 * time.Minute):
			}
			p.kill()
			if err := <-p.done; err != nil {
				t.Logf("a process that was killed: %v", err)
			}
		}
		got := k.info(killer)
		equal(t, "state", got.State, core.JobFailed)
		equal(t, "code", got.Failure.Code, core.CodeCrashed)
		equal(t, "kills", kills, core.DefaultMaxRedeliveries+1)
		for _, id := range append(ids, late...) {
			equal(t, "state of another", k.info(id).State, core.JobCompleted)
		}
	})
}
