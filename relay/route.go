package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/crash"
)

// route runs one Route: standby, then a term, and again.
type route struct {
	relay   *Relay
	cfg     *Route
	sink    core.Sink
	caps    core.Capabilities
	log     *slog.Logger
	store   trouble // of the store
	outage  trouble // of the sink as a whole
	blocked trouble // of single keys
	stall   trouble // of reading, behind keys that wait
	metrics *routeMetrics
	tracer  tracer

	mu     sync.Mutex
	since  time.Time
	heldBy string
	term   *term // nil on standby
	// progress outlives terms.
	progress progress
}

// progress is how far the position has come.
type progress struct {
	position core.Position
	time     time.Time // of the event at the position
	at       time.Time // when the position moved last
}

// names of operations of the store, as trouble and logs tell them.
const (
	opAcquire = "acquiring the cursor"
	opRead    = "reading the log"
	opSave    = "saving the position"
	opRenew   = "renewing the lease"
	opSuspect = "noting the suspect"
	opPark    = "setting failed events aside"

	opOpenJobs   = "listing parked jobs"
	opClaimJobs  = "claiming parked jobs"
	opExtendJobs = "extending the leases of parked jobs"
	opSettleJobs = "settling parked jobs"

	opRelease = "giving the cursor back"
	opWindow  = "window"
)

func newRoute(r *Relay, cfg *Route) *route {
	log := r.cfg.Logger.With("route", cfg.Name, "sink", cfg.Sink)
	sink := r.cfg.Sinks[cfg.Sink]
	return &route{
		relay: r, cfg: cfg, sink: sink, caps: core.CapabilitiesOf(sink), log: log,
		store:   trouble{log: log, begin: "the store fails: waiting for it", end: "the store works again"},
		outage:  trouble{log: log, begin: "the sink takes nothing: waiting for it", end: "the sink works again"},
		stall:   trouble{log: log, begin: "reading waits behind an event that does not get through", end: "reading goes on"},
		blocked: trouble{log: log, begin: "an event did not get through: its key waits, the others go on", end: "no key waits any more"},
		metrics: r.metrics.forRoute(cfg),
		tracer:  newTracer(r.cfg.TracerProvider, cfg),
	}
}

// run returns when ctx has ended and the last term is over.
func (rt *route) run(ctx context.Context) error {
	var pause waits
	for {
		rt.setTerm(nil)
		cursor, err := rt.standBy(ctx)
		if cursor == nil {
			return err
		}
		crash.Here("relay.acquired")
		t := newTerm(rt, cursor)
		rt.setTerm(t)
		err = t.run(ctx)
		rt.store.collapse(opAcquire)
		if err != nil || ctx.Err() != nil {
			rt.setTerm(nil)
			return err
		}
		// Two processes of one owner would take the cursor from each other
		// without end: not as fast as they can.
		if time.Since(t.began) > rt.relay.cfg.CursorLease || !pause.started() {
			pause = rt.relay.cfg.StoreBackoff.start()
		}
		rt.setTerm(nil)
		sleep(ctx, pause.next())
	}
}

// standBy tries to get the cursor until it has it. It returns nil when ctx ends,
// and an error when no waiting can help.
func (rt *route) standBy(ctx context.Context) (core.Cursor, error) {
	lease := rt.relay.cfg.CursorLease
	var seen struct {
		revision string
		at       time.Time
	}
	waits := rt.relay.cfg.StoreBackoff.start()
	told := false
	for ctx.Err() == nil {
		req := core.AcquireRequest{
			Name: rt.cfg.Name, Owner: rt.relay.cfg.Owner, Lease: lease,
			Start: rt.cfg.Start, Marking: rt.cfg.Marking, Sink: rt.cfg.Sink,
		}
		if seen.revision != "" && time.Since(seen.at) > lease {
			req.Unchanged = seen.revision
		}
		cursor, err := rt.acquire(ctx, req)
		if err == nil {
			rt.store.ok(opAcquire)
			return cursor, nil
		}
		if errors.Is(err, core.ErrNewerLayout) {
			return nil, fmt.Errorf("route %q: %s: %w", rt.cfg.Name, opAcquire, err)
		}
		wait := time.Duration(0)
		if held, ok := errors.AsType[*core.HeldError](err); ok {
			rt.store.ok(opAcquire)
			waits = rt.relay.cfg.StoreBackoff.start()
			if held.Revision != seen.revision {
				seen.revision, seen.at = held.Revision, time.Now()
			}
			if !told {
				rt.log.Info("standing by: the cursor is held by another process", "held_by", held.Owner)
				told = true
			}
			rt.setHeldBy(held.Owner)
			// A little less than a third, so that not all come at once.
			wait = time.Duration(float64(lease) / 3 * (0.8 + 0.2*rand.Float64()))
		} else if ctx.Err() == nil {
			rt.store.failed(opAcquire, err)
			wait = waits.next()
		}
		if !sleep(ctx, wait) {
			break
		}
	}
	return nil, nil //nolint:nilnil // ctx has ended
}

// acquire asks once, for no longer than a lease. A cursor that came although
// ctx had ended is given back.
func (rt *route) acquire(ctx context.Context, req core.AcquireRequest) (core.Cursor, error) {
	limited, cancel := context.WithTimeout(ctx, req.Lease)
	defer cancel()
	cursor, err := rt.relay.cfg.Log.Acquire(limited, req)
	if err != nil || ctx.Err() == nil {
		return cursor, err
	}
	rt.release(ctx, cursor)
	return nil, ctx.Err()
}

// release gives a cursor back, also when ctx has ended.
func (rt *route) release(ctx context.Context, cursor core.Cursor) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(rt.relay.cfg.CursorLease, 5*time.Second))
	defer cancel()
	if err := cursor.Release(ctx); err != nil && !errors.Is(err, core.ErrFenced) {
		rt.log.Warn("the cursor could not be given back: another process gets it when the lease has run out", "error", err)
	}
}

func (rt *route) setTerm(t *term) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if t != nil {
		rt.heldBy, rt.since = rt.relay.cfg.Owner, time.Now()
		rt.progress.position = t.found.Position
	} else if rt.term != nil || rt.since.IsZero() {
		rt.heldBy, rt.since = "", time.Now()
	}
	rt.term = t
}

func (rt *route) setHeldBy(owner string) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	rt.heldBy = owner
}

// moved notes that the position was saved.
func (rt *route) moved(to core.Position, committed time.Time) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if to == rt.progress.position {
		return
	}
	rt.progress.position, rt.progress.at = to, time.Now()
	if !committed.IsZero() {
		rt.progress.time = committed
	}
}

// holding tells whether this process holds the cursor.
func (rt *route) holding() bool {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	return rt.term != nil
}

func (rt *route) status() RouteStatus {
	rt.mu.Lock()
	s := RouteStatus{
		Name: rt.cfg.Name, Sink: rt.cfg.Sink, State: Standby, Since: rt.since, HeldBy: rt.heldBy,
		Position: rt.progress.position, PositionTime: rt.progress.time, LastProgress: rt.progress.at,
	}
	t := rt.term
	rt.mu.Unlock()
	s.StoreError, s.StoreSince = rt.store.now()
	if t != nil {
		s.State, s.Fence = Holding, t.found.Fence
		s.SinkError, s.SinkSince = rt.outage.now()
		s.Stalled, s.StalledSince = rt.stall.now()
		t.status(&s)
	}
	return s
}
