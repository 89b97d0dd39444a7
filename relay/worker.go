package relay

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/gooutbox/outbox/core"
)

// worker runs one Worker: a claimer keeps jobs at hand, lanes call the sink with
// them, and the relay's settler writes what became of them. What they share is
// guarded by one lock, never held while a store or sink is called; the locks of
// leases and settler are taken inside no other one.
type worker struct {
	relay   *Relay
	cfg     *Worker
	sink    core.Sink
	caps    core.Capabilities
	log     *slog.Logger
	metrics *workerMetrics
	tracer  tracer
	outage  trouble // of the sink as a whole

	// delivering is the context of calls to the sink.
	delivering context.Context
	stopCalls  context.CancelFunc

	mu        sync.Mutex
	work      *sync.Cond // wakes a lane
	room      chan struct{}
	draining  bool
	hand      hand
	limits    *limits
	gate      gate
	speed     speed
	began     []time.Time // of each lane, when its call began
	calls     int         // under way
	inFlight  int         // jobs in them
	passes    uint64      // calls that delivered something
	notes     map[string]*note
	throttled time.Time                      // until when the sink asked to wait
	spared    map[core.PauseTarget]time.Time // until when, of what the sink throttles
	suspects  int                            // jobs at hand that may be what ends processes
	alarm     *time.Timer                    // wakes lanes when a wait is over
	alarmAt   time.Time

	pauseTold bool // by tellPause

	claims claims
}

func newWorker(r *Relay, cfg *Worker) *worker {
	sink := r.cfg.Sinks[cfg.Sink]
	log := r.cfg.Logger.With("sink", cfg.Sink)
	w := &worker{
		relay: r, cfg: cfg, sink: sink, caps: core.CapabilitiesOf(sink), log: log,
		metrics: r.jobMetrics.forWorker(cfg, r.metrics),
		tracer:  newWorkerTracer(r.cfg.TracerProvider, cfg),
		outage:  trouble{log: log, begin: "the sink takes no jobs: waiting for it", end: "the sink works again"},
	}
	w.work, w.room = sync.NewCond(&w.mu), make(chan struct{}, 1)
	return w
}

// run delivers jobs until ctx ends, and then drains. It returns an error when a
// call to the sink did not end although its context had.
func (w *worker) run(ctx context.Context) error {
	w.mu.Lock()
	w.draining, w.calls, w.inFlight, w.suspects = false, 0, 0, 0
	w.hand, w.limits = newHand(), newLimits(w.cfg.Rate, w.cfg.TenantRate)
	w.gate = newGate(w.cfg.BatchJobs, w.cfg.OutageBackoff)
	w.speed, w.began, w.notes = speed{}, make([]time.Time, w.cfg.Lanes), map[string]*note{}
	w.spared, w.throttled = map[core.PauseTarget]time.Time{}, time.Time{}
	w.claims = newClaims()
	w.alarmAt = time.Time{}
	w.alarm = time.AfterFunc(time.Hour, w.ring)
	w.delivering, w.stopCalls = context.WithCancel(context.WithoutCancel(ctx))
	w.mu.Unlock()
	defer w.stopCalls()
	defer w.alarm.Stop()

	var lanes sync.WaitGroup
	for n := range w.cfg.Lanes {
		lanes.Go(func() { w.lane(n) })
	}
	w.claim(ctx)
	w.drain()
	ended := make(chan struct{})
	go func() {
		lanes.Wait()
		close(ended)
	}()
	defer w.outage.reset()
	if within(w.relay.cfg.Drain, ended, nil) {
		return nil
	}
	w.stopCalls()
	if within(stopGrace, ended, nil) {
		return nil
	}
	return fmt.Errorf("worker of sink %q: %d calls did not end: their jobs are lent to others when the leases have run out",
		w.cfg.Sink, w.status().Calls)
}

// drain stops beginning calls, and gives back what was claimed ahead.
func (w *worker) drain() {
	w.mu.Lock()
	w.draining = true
	ahead := w.hand.remove(func(*held) bool { return true })
	w.work.Broadcast()
	w.mu.Unlock()
	w.giveBack(ahead, 0)
}

// giveBack returns jobs that were not begun.
func (w *worker) giveBack(jobs []*held, delay time.Duration) {
	var v verdict
	for _, j := range jobs {
		v.settle(j, core.Settlement{Kind: core.GiveBack, Delay: delay})
	}
	w.relay.settler.add(v.settled, true)
}

// busy tells whether jobs are in this worker's hands.
func (w *worker) busy() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calls > 0 || len(w.hand.jobs) > 0
}

// signalRoom lets the claimer look whether it has something to do.
func (w *worker) signalRoom() {
	select {
	case w.room <- struct{}{}:
	default:
	}
}

// wakeAt sees that lanes look again at a time. The lock is held.
func (w *worker) wakeAt(at time.Time) {
	if at.IsZero() || !w.alarmAt.IsZero() && !at.Before(w.alarmAt) {
		return
	}
	w.alarmAt = at
	w.alarm.Reset(time.Until(at))
}

// ring is called when a wait is over.
func (w *worker) ring() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.alarmAt = time.Time{}
	w.work.Broadcast()
	w.signalRoom()
}

// lost is told of jobs whose leases were lost.
func (w *worker) lost(jobs []*held) {
	w.metrics.lostLeases(len(jobs))
	w.log.Warn("leases of jobs were lost: what was under way may be delivered twice",
		"jobs", len(jobs), "first", short(jobs[0].job.ID))
	ids := make(map[*held]bool, len(jobs))
	for _, j := range jobs {
		ids[j] = true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hand.remove(func(j *held) bool { return ids[j] })
	for _, j := range jobs {
		w.cleared(j)
	}
}

// cleared is told of a job that is no longer at hand. The lock is held.
func (w *worker) cleared(j *held) {
	if j.suspect {
		j.suspect = false
		w.suspects--
	}
}

// wrote is told of a settlement that was written.
func (w *worker) wrote(ctx context.Context, one *settled) {
	j := one.job()
	w.metrics.wrote(one)
	w.mu.Lock()
	w.cleared(one.held)
	w.mu.Unlock()
	if one.Kind != core.Fail && one.Kind != core.EndUnknown {
		return
	}
	e := &j.Lease.Event
	told := FailedJob{
		ID: j.ID, EventID: e.ID, Key: e.AggregateID, Type: e.Type, Tenant: e.Tenant, Sink: j.Sink,
		Attempts: j.Lease.Attempt, Failure: one.Failure,
	}
	text := "a job failed for good and is kept"
	if one.Kind == core.EndUnknown {
		text = "it is not known whether a job was delivered: it is kept, and not sent again by itself"
	}
	w.log.Error(text, "job", short(j.ID), "key", short(e.AggregateID), "type", short(e.Type),
		"attempts", told.Attempts, "code", one.Failure.Code, "reason", one.Failure.Reason)
	w.relay.onFailed(ctx, told)
}

func (s *settled) job() *core.Claimed { return s.held.job }
