package trial

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Killing says how a relay is killed again and again.
type Killing struct {
	// Start starts a relay. The first call is Run's too.
	Start func() (*Relay, error)
	// Collector tells what has arrived.
	Collector *Collector
	// Events is how many new ones must arrive between two kills. Defaults to
	// 100.
	Events int
	// Pause bounds the random time that the relay then goes on. Defaults to
	// half a second.
	Pause time.Duration
	// Killed is called after each kill. Optional.
	Killed func(kills int)
}

// Run starts a relay, kills it with SIGKILL at a random moment, starts the
// next, and so on until ctx ends. It returns the relay that then runs, and the
// number of kills. Someone must keep the collector reading meanwhile, see
// Collector.Follow. A relay that ends by itself is an error.
func (k Killing) Run(ctx context.Context) (*Relay, int, error) {
	if k.Events <= 0 {
		k.Events = 100
	}
	if k.Pause <= 0 {
		k.Pause = 500 * time.Millisecond
	}
	for kills := 0; ; kills++ {
		before, _ := k.Collector.Events()
		relay, err := k.Start()
		if err != nil {
			return nil, kills, err
		}
		if kills > 0 && k.Killed != nil {
			k.Killed(kills)
		}
		if err := k.awaitEvents(ctx, relay, before+k.Events); err != nil {
			return nil, kills, err
		}
		select {
		case <-ctx.Done():
			return relay, kills, nil
		case <-time.After(rand.N(k.Pause)):
		}
		relay.Kill()
	}
}

// awaitEvents returns when so many events have arrived, or ctx has ended.
func (k Killing) awaitEvents(ctx context.Context, relay *Relay, events int) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if n, _ := k.Collector.Events(); n >= events {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-relay.Done():
			return fmt.Errorf("the relay has ended by itself\n%s", relay.Log())
		case <-tick.C:
		}
	}
}

// stalled is how long AwaitDelivered waits without anything new.
const stalled = 45 * time.Second

// AwaitDelivered reads until every committed event has arrived. It gives up
// with an error when nothing new came for a while; Check then tells what is
// missing.
func (c *Collector) AwaitDelivered(ctx context.Context, committed []Committed) error {
	newest, since := -1, time.Now()
	for {
		err := c.CatchUp(ctx)
		missing := 0
		for _, e := range committed {
			if !c.Has(e.ID) {
				missing++
			}
		}
		if missing == 0 && err == nil {
			return nil
		}
		if n, _ := c.Events(); n > newest {
			newest, since = n, time.Now()
		}
		if time.Since(since) > stalled {
			silence := fmt.Errorf("nothing new came for %s: %d of %d events are missing", stalled, missing, len(committed))
			return errors.Join(silence, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %d of %d events: %w", missing, len(committed), ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}
