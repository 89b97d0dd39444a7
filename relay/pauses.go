package relay

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gooutbox/outbox/core"
)

const (
	// pausesFresh is how old what is known of pauses may be while there is work.
	pausesFresh = time.Second
	// pausesLook is how often it is asked at least whether a pause has ended: the
	// store's clock says when, and this process's may be another.
	pausesLook = 5 * time.Second
	// pausesSeldom is how old it may be where the store tells of changes.
	pausesSeldom = DefaultJobPoll
	// pausesTimeout bounds one question.
	pausesTimeout = 5 * time.Second
)

// pauses are those in force, as this process knows them.
type pauses struct {
	queue core.Queue
	store *trouble
	// changed is called when others are in force than before.
	changed func()

	asking chan struct{} // holds a token while one asks

	mu      sync.Mutex
	asked   time.Time // zero: never, or a change was told since
	sinks   map[string]core.Pause
	tenants map[string]core.Pause
}

// stale makes the next look ask the store.
func (p *pauses) stale() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = time.Time{}
}

func (p *pauses) fresh(now time.Time, within time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.asked.IsZero() && now.Sub(p.asked) < within
}

// refresh asks the store, unless that was done within a time.
func (p *pauses) refresh(ctx context.Context, within time.Duration) error {
	if p.fresh(time.Now(), within) {
		return nil
	}
	select {
	case p.asking <- struct{}{}:
		defer func() { <-p.asking }()
	case <-ctx.Done():
		return fmt.Errorf("asking what is paused: %w", ctx.Err())
	}
	now := time.Now()
	if p.fresh(now, within) {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, pausesTimeout)
	defer cancel()
	p.mu.Lock()
	p.asked = now // what is told from now on makes it stale again
	p.mu.Unlock()
	list, err := p.queue.Pauses(limited)
	if err != nil {
		p.stale()
		if ctx.Err() == nil {
			p.store.failed(opPauses, err)
		}
		return fmt.Errorf("asking what is paused: %w", err)
	}
	p.store.ok(opPauses)
	sinks, tenants := map[string]core.Pause{}, map[string]core.Pause{}
	for _, one := range list {
		switch one.Scope {
		case core.PauseSink:
			sinks[one.Name] = one
		case core.PauseTenant:
			tenants[one.Name] = one
		}
	}
	p.mu.Lock()
	same := sameNames(p.sinks, sinks) && sameNames(p.tenants, tenants)
	p.sinks, p.tenants = sinks, tenants
	p.mu.Unlock()
	if !same {
		p.changed()
	}
	return nil
}

func sameNames(a, b map[string]core.Pause) bool {
	if len(a) != len(b) {
		return false
	}
	for name := range a {
		if _, there := b[name]; !there {
			return false
		}
	}
	return true
}

// sink is the pause of a sink, if it is paused.
func (p *pauses) sink(name string) (core.Pause, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	one, paused := p.sinks[name]
	return one, paused
}

// status is why a sink is paused and until when, "" if it isn't.
func (p *pauses) status(name string) (reason string, until time.Time) {
	one, paused := p.sink(name)
	if !paused {
		return "", time.Time{}
	}
	return cmp.Or(one.Reason, "paused"), one.Until
}

// pausedTenants are the names of tenants that are paused, nil for none. They
// must not be changed.
func (p *pauses) pausedTenants() map[string]core.Pause {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tenants
}

// nextLook is how long to wait before it is asked whether a pause has ended.
func nextLook(one core.Pause, now time.Time) time.Duration {
	if one.Until.IsZero() {
		return pausesLook
	}
	return min(max(one.Until.Sub(now), 50*time.Millisecond), pausesLook)
}

// watchPauses keeps what is known of pauses fresh while there is work: what is
// paused stops within a second, also what was claimed before.
func (r *Relay) watchPauses(ctx context.Context) {
	waits := r.cfg.StoreBackoff.start()
	for sleep(ctx, pausesFresh*9/10) {
		within := r.pausesWithin()
		if within == 0 {
			continue
		}
		if err := r.pauses.refresh(ctx, within); err != nil && ctx.Err() == nil {
			sleep(ctx, waits.next())
			continue
		}
		waits = r.cfg.StoreBackoff.start()
	}
}

// pausesWithin is how old what is known of pauses may be at present, 0 if it
// doesn't matter. A route always has work; where the store tells of changes it
// asks seldom.
func (r *Relay) pausesWithin() (within time.Duration) {
	if slices.ContainsFunc(r.workers, (*worker).busy) {
		return pausesFresh / 2
	}
	for _, rt := range r.routes {
		if !rt.holding() {
			continue
		}
		if _, paused := r.pauses.sink(rt.cfg.Sink); paused || !r.watching.Load() {
			return pausesFresh / 2
		}
		within = pausesSeldom
	}
	return within
}

const opPauses = "asking what is paused"
