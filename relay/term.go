package relay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gooutbox/outbox/core"
)

// term is the time from getting a cursor to losing it or giving it back. One
// goroutine reads ahead, several lanes call the sink, one saves the position,
// one sets failed events aside, and one keeps the lease. What they share is
// guarded by one lock, taken once a batch.
//
// Everything that the term knows is forgotten when it is over: the next holder
// begins at the saved position.
type term struct {
	route  *route
	cursor core.Cursor
	found  core.Term
	source string
	began  time.Time
	span   uint64 // see take

	// alive ends when the lease does, not with Run's context: what drains
	// still writes. delivering is that of calls to the sink.
	alive, delivering context.Context
	kill              context.CancelCauseFunc
	stopCalls         context.CancelFunc

	mu sync.Mutex
	// work wakes a lane, room the reader, dirty the saver and aside the
	// parker.
	work, room, dirty, aside *sync.Cond
	// draining: nothing new is begun. finishing: no call is under way any more
	// and none will be. over: the cursor is lost or given back.
	draining, finishing, over bool
	careful                   bool // see careful.go
	paused                    bool // see pausedroute.go

	win       window
	keys      keys
	gate      gate
	passes    uint64 // calls that delivered something
	throttled time.Time
	calls     int // under way
	inFlight  int // events in them
	jobCalls  int // calls under way of parked jobs
	jobsLast  bool
	jobSize   int // how many bytes a job held of late
	lines     lines
	lookout   lookout
	parks     []park
	parking   int // events that are being set aside, parks included

	alarm   *time.Timer // wakes a lane when a wait is over
	alarmAt time.Time
	saver   saver
}

func newTerm(rt *route, cursor core.Cursor) *term {
	most := rt.cfg.BatchEvents
	if rt.caps.MaxBatch > 0 {
		most = min(most, rt.caps.MaxBatch)
	}
	t := &term{
		route: rt, cursor: cursor, found: cursor.Term(), source: rt.relay.cfg.Log.Source(),
		began: time.Now(), span: uint64(rt.cfg.Lanes * most),
		win:   window{limit: rt.cfg.Window},
		keys:  keys{byName: map[string]*key{}},
		lines: lines{all: map[*line]struct{}{}}, jobSize: jobSize, lookout: lookout{wanted: make(chan struct{}, 1)},
		gate: newGate(most, rt.cfg.OutageBackoff),
	}
	t.work, t.room, t.dirty, t.aside = sync.NewCond(&t.mu), sync.NewCond(&t.mu), sync.NewCond(&t.mu), sync.NewCond(&t.mu)
	if t.found.Fruitless >= fruitlessTerms {
		t.careful, t.gate.limit = true, 1
	}
	return t
}

// run delivers until ctx ends or the lease is lost, and returns an error when a
// call to the sink did not end although its context had.
func (t *term) run(ctx context.Context) error {
	t.announce()
	t.alive, t.kill = context.WithCancelCause(context.WithoutCancel(ctx))
	t.delivering, t.stopCalls = context.WithCancel(t.alive)
	defer t.stopCalls()
	t.startTimers()
	defer t.stopTimers()

	var keepers, workers, lanes sync.WaitGroup
	keepers.Go(t.watchLease)
	keepers.Go(t.renew)
	workers.Go(t.save)
	workers.Go(t.setAsideAll)
	if t.findJobs(ctx) {
		lanes.Go(func() { t.read(ctx) })
		for range t.route.cfg.Lanes {
			lanes.Go(t.lane)
		}
	}
	if t.canPark() {
		keepers.Go(t.watchJobs)
	}
	cancelDrain := context.AfterFunc(ctx, t.drain)
	defer cancelDrain()

	err := t.waitFor(ctx, &lanes)
	late := time.AfterFunc(stopGrace, func() { t.end(errDrainEnded) })
	defer late.Stop()
	t.finish()
	workers.Wait()
	t.end(errReleased)
	lost := t.lost()
	keepers.Wait()
	t.route.blocked.reset()
	t.route.stall.reset()
	t.route.metrics.ended(lost)
	if lost != nil {
		t.route.log.Warn("the cursor was lost: what was under way will be repeated", "error", lost, "fence", t.found.Fence)
	}
	if err == nil {
		t.route.release(ctx, t.cursor)
	}
	return err
}

func (t *term) announce() {
	t.route.metrics.began()
	t.route.log.Info("holding the cursor", "owner", t.route.relay.cfg.Owner, "fence", t.found.Fence)
	if t.careful {
		t.route.log.Warn("earlier holders ended without progress: sending events one by one until there is some",
			"terms", t.found.Fruitless)
	}
}

var (
	errReleased   = errors.New("the cursor is given back")
	errDrainEnded = errors.New("the drain time is over")
)

// end makes the term over, for the reason of the first call.
func (t *term) end(reason error) {
	t.kill(reason)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	t.wakeAll()
}

// lost is why the cursor was lost, nil if it wasn't.
func (t *term) lost() error {
	if reason := context.Cause(t.alive); !errors.Is(reason, errReleased) {
		return reason
	}
	return nil
}

// drain stops beginning anything new.
func (t *term) drain() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.draining = true
	t.wakeAll()
}

// finish lets what was settled be saved, and then saver and parker end. It is
// called when reader and lanes have ended.
func (t *term) finish() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.finishing = true
	t.wakeAll()
}

// wakeAll wakes every goroutine of the term. The lock is held.
func (t *term) wakeAll() {
	for _, c := range []*sync.Cond{t.work, t.room, t.dirty, t.aside} {
		c.Broadcast()
	}
}

// stopGrace is for how long calls to the sink may still go on after their
// contexts ended, and final writes after the last call.
const stopGrace = 5 * time.Second

// waitFor waits for reader and lanes. They end when the term is over, or when
// it drains. After the drain time calls are cancelled; if one goes on all the
// same while Run has to return, an error tells it.
func (t *term) waitFor(ctx context.Context, lanes *sync.WaitGroup) error {
	ended := make(chan struct{})
	go func() {
		lanes.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-t.alive.Done():
	case <-ctx.Done():
	}
	if ctx.Err() == nil { // lost: the contexts of the calls have ended
		if within(stopGrace, ended, ctx.Done()) {
			return nil
		}
		if ctx.Err() == nil {
			t.route.log.Warn("a call to the sink goes on although its context has ended: the route waits for it", "calls", t.callsNow())
			select {
			case <-ended:
				return nil
			case <-ctx.Done():
			}
		}
	}
	if within(t.route.relay.cfg.Drain, ended, t.alive.Done()) {
		return nil
	}
	t.stopCalls()
	if within(stopGrace, ended, nil) {
		return nil
	}
	return fmt.Errorf("route %q: %d calls to the sink %q did not end: its cursor is not given back",
		t.route.cfg.Name, t.callsNow(), t.route.cfg.Sink)
}

// within tells whether ended is closed within d, and before other is.
func within(d time.Duration, ended, other <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ended:
		return true
	case <-timer.C:
	case <-other:
	}
	select {
	case <-ended:
		return true
	default:
		return false
	}
}

func (t *term) callsNow() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.calls
}

// persist does a write of the cursor until it succeeds, and returns false if
// the term ended before it did.
func (t *term) persist(what string, write func(ctx context.Context) error) bool {
	var pause waits
	for {
		err := t.limited(write)
		switch {
		case err == nil:
			t.route.store.ok(what)
			return true
		case errors.Is(err, core.ErrFenced):
			t.end(err)
			return false
		case t.alive.Err() != nil:
			return false
		}
		t.route.store.failed(what, err)
		if !pause.started() {
			pause = t.route.relay.cfg.StoreBackoff.start()
		}
		if !sleep(t.alive, pause.next()) {
			return false
		}
	}
}

// limited does one write, for no longer than a lease.
func (t *term) limited(write func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(t.alive, t.route.relay.cfg.CursorLease)
	defer cancel()
	return write(ctx)
}
