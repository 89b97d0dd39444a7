package relay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Relay runs routes and workers. Make one with New; its methods may be called by several
// goroutines at once.
type Relay struct {
	cfg     Config
	routes  []*route
	workers []*worker
	metrics *instruments
	running atomic.Bool

	// Of a relay with a Queue.
	bells      bells
	jobMetrics *jobInstruments
	jobStore   trouble // of the store, where jobs are concerned
	pauses     pauses
	watching   atomic.Bool // the store tells of changes
	leases     *leases
	settler    *settler
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
	jobMetrics, err := newJobInstruments(cfg.MeterProvider)
	if err != nil {
		return nil, fmt.Errorf("configuring the relay: creating its metrics: %w", err)
	}
	r := &Relay{cfg: cfg, metrics: metrics, jobMetrics: jobMetrics}
	r.jobStore = trouble{log: cfg.Logger, begin: "the store of the jobs fails: waiting for it", end: "the store of the jobs works again"}
	r.pauses = pauses{queue: cfg.Queue, store: &r.jobStore, changed: r.pausesChanged, asking: make(chan struct{}, 1)}
	for i := range cfg.Workers {
		r.workers = append(r.workers, newWorker(r, &cfg.Workers[i]))
	}
	for i := range cfg.Routes {
		r.routes = append(r.routes, newRoute(r, &cfg.Routes[i]))
	}
	return r, nil
}

// Run runs all routes and workers until ctx ends. Then it drains: nothing more
// is read, claimed or sent, calls to sinks that are under way may end within
// Config.Drain, what was settled is saved, and cursors and jobs are given back.
// It returns nil after that, or an error that names what did not end in time; a
// cursor with such a call is not given back, so that no other process sends
// beside it.
//
// Neither the store nor the sinks being away ends Run: it waits for them. A
// stored layout that is newer than this program does: all drain, and the error
// matches core.ErrNewerLayout. Only one Run may be under way; it may be called
// again after it has returned.
func (r *Relay) Run(ctx context.Context) error {
	if !r.running.CompareAndSwap(false, true) {
		return errors.New("running the relay: it is running already")
	}
	defer r.running.Store(false)
	stop, err := r.observe()
	if err != nil {
		return fmt.Errorf("running the relay: registering its metrics: %w", err)
	}
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(r.routes)+len(r.workers)+1)
	var wg, upkeep sync.WaitGroup
	run := func(i int, one func(context.Context) error) {
		wg.Go(func() {
			if errs[i] = one(ctx); errs[i] != nil {
				cancel()
			}
		})
	}
	settled := r.startQueue(ctx, &upkeep)
	for i, rt := range r.routes {
		run(i, rt.run)
	}
	for i, w := range r.workers {
		run(len(r.routes)+i, w.run)
	}
	if r.cfg.Retention > 0 && len(r.routes) > 0 {
		upkeep.Go(func() { r.clean(ctx) })
	}
	wg.Wait()
	errs[len(errs)-1] = settled()
	cancel()
	upkeep.Wait()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("running the relay: %w", err)
	}
	return nil
}

// startQueue starts what routes and workers share of the queue, until ctx ends.
// The function that it returns is called when they have ended: it sees that all
// results are written.
func (r *Relay) startQueue(ctx context.Context, upkeep *sync.WaitGroup) (settled func() error) {
	if r.cfg.Queue == nil {
		return func() error { return nil }
	}
	upkeep.Go(func() { r.watch(ctx) })
	upkeep.Go(func() { r.takeBack(ctx) })
	upkeep.Go(func() { r.cleanJobs(ctx) })
	upkeep.Go(func() { r.watchPauses(ctx) })
	if len(r.workers) == 0 {
		return func() error { return nil }
	}
	r.leases = newLeases(r.cfg.Queue, r.cfg.StoreBackoff, &r.jobStore)
	r.settler = newSettler(r.cfg.Queue, r.cfg.StoreBackoff, &r.jobStore, r.leases)
	// Both go on in a drain.
	alive, kill := context.WithCancel(context.WithoutCancel(ctx))
	drains := context.AfterFunc(ctx, r.settler.drain)
	left := make(chan int, 1)
	go func() { left <- r.settler.run(alive) }()
	var renewal sync.WaitGroup
	renewal.Go(func() { r.leases.run(alive) })
	return func() error {
		defer drains()
		r.settler.finish()
		late := time.AfterFunc(stopGrace, kill)
		defer late.Stop()
		unwritten := <-left
		kill()
		renewal.Wait()
		if unwritten > 0 {
			return fmt.Errorf("the results of %d jobs could not be written: they are delivered again", unwritten)
		}
		return nil
	}
}

// pausesChanged lets workers and routes look.
func (r *Relay) pausesChanged() {
	for _, rt := range r.routes {
		rt.pausesChanged()
	}
	for _, w := range r.workers {
		w.tellPause()
		w.signalRoom()
	}
}

// observe registers the gauges, and returns what ends that.
func (r *Relay) observe() (stop func(), err error) {
	ofRoutes, err := r.metrics.observe(r)
	if err != nil || r.cfg.Queue == nil {
		return ofRoutes, err
	}
	ofJobs, err := r.jobMetrics.observe(r)
	if err != nil {
		ofRoutes()
		return nil, err
	}
	return func() { ofRoutes(); ofJobs() }, nil
}
