package relay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// Relay runs routes. Make one with New; its methods may be called by several
// goroutines at once.
type Relay struct {
	cfg     Config
	routes  []*route
	metrics *instruments
	bells   bells
	running atomic.Bool
}

// New returns a relay for a valid configuration. It asks no server; the error
// names every problem of the configuration, see Config.Validate.
func New(cfg Config) (*Relay, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configuring the relay: %w", err)
	}
	cfg = cfg.withDefaults()
	metrics, err := newInstruments(cfg.MeterProvider)
	if err != nil {
		return nil, fmt.Errorf("configuring the relay: creating its metrics: %w", err)
	}
	r := &Relay{cfg: cfg, metrics: metrics}
	for i := range cfg.Routes {
		r.routes = append(r.routes, newRoute(r, &cfg.Routes[i]))
	}
	return r, nil
}

// Run runs all routes until ctx ends. Then it drains: nothing more is read or
// sent, calls to sinks that are under way may end within Config.Drain, what was
// settled is saved, and the cursors are given back. It returns nil after that,
// or an error that names what did not end in time; a cursor with such a call is
// not given back, so that no other process sends beside it.
//
// Neither the store nor the sinks being away ends Run: it waits for them. A
// stored layout that is newer than this program does: all routes drain, and the
// error matches core.ErrNewerLayout. Only
// one Run may be under way; it may be called again after it has returned.
func (r *Relay) Run(ctx context.Context) error {
	if !r.running.CompareAndSwap(false, true) {
		return errors.New("running the relay: it is running already")
	}
	defer r.running.Store(false)
	stop, err := r.metrics.observe(r)
	if err != nil {
		return fmt.Errorf("running the relay: registering its metrics: %w", err)
	}
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(r.routes))
	var wg sync.WaitGroup
	for i, rt := range r.routes {
		wg.Go(func() {
			if errs[i] = rt.run(ctx); errs[i] != nil {
				cancel()
			}
		})
	}
	if r.cfg.Retention > 0 && len(r.routes) > 0 {
		wg.Go(func() { r.clean(ctx) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("running the relay: %w", err)
	}
	return nil
}
