package dedupe

import (
	"context"
	"fmt"

	"github.com/gooutbox/outbox/consumer"
)

// Guard lets each event have its effect once. Its methods may be called by
// several goroutines at once.
type Guard struct {
	store  Store
	cfg    Config
	counts *counts
}

// New makes a Guard over a store. The error names every problem of cfg.
func New(store Store, cfg Config) (*Guard, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configuring the guard: %w", err)
	}
	cfg = cfg.withDefaults()
	counts, err := newCounts(cfg)
	if err != nil {
		return nil, err
	}
	return &Guard{store: store, cfg: cfg, counts: counts}, nil
}

// Verdict is what a Guard made of a delivery.
type Verdict uint8

// The verdicts. The zero value comes with an error of fn or the store.
const (
	// Fresh: the effect took place now.
	Fresh Verdict = iota + 1
	// Repeated: the effect had taken place before, and was not repeated.
	Repeated
	// Stale: a newer version or a higher fence was seen; there was no effect.
	Stale
	// InFlight: another consumer is at it.
	InFlight
	// Uncertain: the effect may have taken place, and is not repeated.
	Uncertain
)

var verdictNames = [...]string{"none", "fresh", "repeated", "stale", "in_flight", "unknown"}

func (v Verdict) String() string {
	if int(v) < len(verdictNames) {
		return verdictNames[v]
	}
	return fmt.Sprintf("verdict(%d)", uint8(v))
}

// Effect is what a consumer does for an event.
type Effect func(ctx context.Context) error

// Once has the effect of an event that this consumer hasn't seen, in one
// transaction with the mark: both are durable when it returns Fresh and nil.
//
// fn makes its writes with the ctx that it is given, by the same client as the
// store's; other writes are not part of the transaction. It may run more than
// once, when the transaction conflicts with another, so it does nothing else
// that matters. An event that it appends to an outbox with ctx exists exactly
// when the effect does. If fn returns an error nothing has happened, and the
// error comes back as it is or wrapped: the next delivery tries again.
//
// Repeated and Stale come without an error: acknowledge the message. Once is not
// called in a transaction of the caller: it makes its own.
func (g *Guard) Once(ctx context.Context, d consumer.Delivery, fn Effect) (Verdict, error) {
	var verdict Verdict
	err := g.store.Transaction(ctx, func(ctx context.Context, tx Tx) error {
		verdict = 0
		if late, err := g.late(tx, []consumer.Delivery{d}); err != nil {
			return err
		} else if late[0] {
			verdict = Stale
			return nil
		}
		fresh, err := tx.Mark([]Key{g.key(d)}, g.cfg.Retention)
		if err != nil {
			return err
		}
		if !fresh[0] {
			verdict = Repeated
			return nil
		}
		if err := fn(ctx); err != nil {
			return err
		}
		verdict = Fresh
		return nil
	})
	if err != nil {
		return 0, err
	}
	return g.counts.add(ctx, verdict), nil
}

// OnceBatch is Once for several events, in one transaction: fn gets those that
// are fresh, in their order, and is not called if there are none. A repeat is
// left out and never stops the others; so is a second event of one id among ds.
// The verdicts are in the order of ds. After an error nothing has happened.
func (g *Guard) OnceBatch(ctx context.Context, ds []consumer.Delivery, fn func(ctx context.Context, fresh []consumer.Delivery) error) ([]Verdict, error) {
	if len(ds) == 0 {
		return nil, nil
	}
	verdicts := make([]Verdict, len(ds))
	var fresh []consumer.Delivery
	err := g.store.Transaction(ctx, func(ctx context.Context, tx Tx) error {
		fresh = fresh[:0]
		late, err := g.late(tx, ds)
		if err != nil {
			return err
		}
		keys := make([]Key, 0, len(ds))
		at := make([]int, 0, len(ds))
		seen := make(map[string]struct{}, len(ds))
		for i, d := range ds {
			verdicts[i] = Repeated
			if late[i] {
				verdicts[i] = Stale
				continue
			}
			if _, twice := seen[d.ID]; twice {
				continue
			}
			seen[d.ID] = struct{}{}
			keys, at = append(keys, g.key(d)), append(at, i)
		}
		if len(keys) == 0 {
			return nil
		}
		marked, err := tx.Mark(keys, g.cfg.Retention)
		if err != nil {
			return err
		}
		for n, isFresh := range marked {
			if isFresh {
				verdicts[at[n]] = Fresh
				fresh = append(fresh, ds[at[n]])
			}
		}
		if len(fresh) == 0 {
			return nil
		}
		return fn(ctx, fresh)
	})
	if err != nil {
		return nil, err
	}
	for _, v := range verdicts {
		g.counts.add(ctx, v)
	}
	return verdicts, nil
}

// IfNewer has the effect of an event whose AggregateVersion is higher than any
// that this consumer has seen of the aggregate, in one transaction with the
// version, as Once does. An equal version is Repeated and a lower one Stale.
// before is the version that was the highest, 0 if there was none. A version
// that doesn't follow it is told to Config.OnGap; the first one of an aggregate
// is no gap.
//
// An event without AggregateVersion can't be compared: the error is marked as
// rejected.
func (g *Guard) IfNewer(ctx context.Context, d consumer.Delivery, fn Effect) (verdict Verdict, before int64, err error) {
	if d.AggregateVersion <= 0 {
		return 0, 0, rejected(d)
	}
	var known bool
	err = g.store.Transaction(ctx, func(ctx context.Context, tx Tx) error {
		verdict = 0
		if late, err := g.late(tx, []consumer.Delivery{d}); err != nil {
			return err
		} else if late[0] {
			verdict = Stale
			return nil
		}
		subject := Subject{Consumer: g.cfg.Consumer, Aggregate: d.Aggregate, AggregateID: d.AggregateID}
		var err error
		if before, known, err = tx.Raise(subject, d.AggregateVersion, g.cfg.VersionRetention); err != nil {
			return err
		}
		switch {
		case known && before == d.AggregateVersion:
			verdict = Repeated
			return nil
		case known && before > d.AggregateVersion:
			verdict = Stale
			return nil
		}
		if err := fn(ctx); err != nil {
			return err
		}
		verdict = Fresh
		return nil
	})
	if err != nil {
		return 0, 0, err
	}
	if verdict == Fresh && known && before+1 < d.AggregateVersion {
		g.counts.gap()
		if g.cfg.OnGap != nil {
			g.cfg.OnGap(Gap{Aggregate: d.Aggregate, AggregateID: d.AggregateID, Before: before, Version: d.AggregateVersion})
		}
	}
	return g.counts.add(ctx, verdict), before, nil
}

// late tells which deliveries come from a holder that has lost its cursor.
func (g *Guard) late(tx Tx, ds []consumer.Delivery) ([]bool, error) {
	late := make([]bool, len(ds))
	if !g.cfg.Fence {
		return late, nil
	}
	var lanes []Lane
	var at []int
	for i, d := range ds {
		if d.Route == "" || d.Fence == 0 || d.Redriven || d.DeadLettered {
			continue
		}
		lanes = append(lanes, Lane{Consumer: g.cfg.Consumer, Route: d.Route, AggregateID: d.AggregateID, Fence: d.Fence})
		at = append(at, i)
	}
	if len(lanes) == 0 {
		return late, nil
	}
	highest, err := tx.Fences(lanes, g.cfg.Retention)
	if err != nil {
		return nil, err
	}
	for n, fence := range highest {
		late[at[n]] = lanes[n].Fence < fence
	}
	return late, nil
}

func (g *Guard) key(d consumer.Delivery) Key { return Key{Consumer: g.cfg.Consumer, EventID: d.ID} }

// Handler makes the handler of an adapter: it has the effect by Once.
func (g *Guard) Handler(fn consumer.Handler) consumer.Handler {
	return func(ctx context.Context, d consumer.Delivery) error {
		_, err := g.Once(ctx, d, func(ctx context.Context) error { return fn(ctx, d) })
		return err
	}
}

// BatchHandler makes the batch handler of an adapter: it has the effects by
// OnceBatch.
func (g *Guard) BatchHandler(fn consumer.BatchHandler) consumer.BatchHandler {
	return func(ctx context.Context, ds []consumer.Delivery) error {
		_, err := g.OnceBatch(ctx, ds, fn)
		return err
	}
}
