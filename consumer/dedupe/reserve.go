package dedupe

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/gooutbox/outbox/consumer"
	"github.com/gooutbox/outbox/core"
)

// ErrInFlight: another consumer has the event's reservation. Come back after
// InFlightError.After.
var ErrInFlight = errors.New("another consumer is at this event")

// ErrUnknown: the event's effect may have taken place; it is not repeated until
// a person decides by Guard.Resolve.
var ErrUnknown = errors.New("the event's effect may have taken place: find out, then resolve it")

// InFlightError is an ErrInFlight. It is marked by core.MarkThrottled.
type InFlightError struct {
	// After is when the reservation runs out if its holder has died.
	After time.Duration
}

func (e *InFlightError) Error() string {
	return fmt.Sprintf("%v, until %v from now at least", ErrInFlight, e.After.Round(time.Millisecond))
}

// Is makes it an ErrInFlight.
func (e *InFlightError) Is(target error) bool { return target == ErrInFlight }

// Reserve has an effect outside of the store, such as a call of another system,
// of an event that this consumer hasn't seen: it reserves the event, runs fn and
// marks it as done. The reservation has a lease, which is renewed while fn runs;
// ctx ends when it is lost. again tells that an earlier run may have had the
// effect: give the other system an idempotency key, such as the event's id, or
// ask it first.
//
//   - Fresh, nil: the effect took place and is marked.
//   - Repeated or Stale, nil: acknowledge the message.
//   - InFlight with an *InFlightError: another consumer is at it; come back later.
//   - Uncertain with ErrUnknown, marked as rejected: see Config.OnCrash. An error
//     of fn that is marked by core.MarkUnknown, or that is the end of a context,
//     leaves the event so where OnCrash is Report.
//   - 0 with another error: fn's error, after which the reservation was given back;
//     or the store's. If the effect took place and marking it failed, the error
//     says so; the event is then in flight until its lease ends, and after that
//     OnCrash decides.
func (g *Guard) Reserve(ctx context.Context, d consumer.Delivery, fn func(ctx context.Context, again bool) error) (Verdict, error) {
	if late, err := g.lateAlone(ctx, d); err != nil {
		return 0, err
	} else if late {
		return g.counts.add(ctx, Stale), nil
	}
	key, token := g.key(d), rand.Text()
	sent := time.Now()
	res, err := g.store.Reserve(ctx, ReserveRequest{
		Key: key, Token: token, Lease: g.cfg.Lease, Retention: g.cfg.Retention, Report: g.cfg.OnCrash == Report,
	})
	if err != nil {
		return 0, err
	}
	switch res.State {
	case Reserved:
	case Marked:
		return g.counts.add(ctx, Repeated), nil
	case Busy:
		return g.counts.add(ctx, InFlight), core.MarkThrottled(&InFlightError{After: res.After}, g.pause(res.After))
	case Doubtful:
		return g.counts.add(ctx, Uncertain), core.MarkRejected(fmt.Errorf("event %.64q: %w", d.ID, ErrUnknown))
	default:
		return 0, fmt.Errorf("reserving the event: the store answered state %d", res.State)
	}
	if err := g.run(ctx, key, token, sent, func(ctx context.Context) error { return fn(ctx, res.Again) }); err != nil {
		return g.failed(ctx, d, key, token, res.Again, err)
	}
	if err := g.finish(ctx, key, token, sent); err != nil {
		if errors.Is(err, ErrLost) {
			g.counts.lost.Add(1)
		}
		return 0, core.MarkThrottled(fmt.Errorf("the effect took place, marking it failed: %w", err), g.cfg.Lease)
	}
	return g.counts.add(ctx, Fresh), nil
}

// pause is how long to wait for another holder: most finish long before their
// lease ends.
func (g *Guard) pause(after time.Duration) time.Duration {
	return max(min(after, g.cfg.Lease/3), 10*time.Millisecond)
}

// failed gives the reservation back after fn returned an error, or keeps it as
// unknown where the error doesn't tell whether the effect took place.
func (g *Guard) failed(ctx context.Context, d consumer.Delivery, key Key, token string, again bool, err error) (Verdict, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.cfg.Lease)
	defer cancel()
	if errors.Is(err, ErrLost) {
		g.counts.lost.Add(1)
		return 0, core.MarkThrottled(err, g.cfg.Lease/3)
	}
	doubt := core.ResultOf("", err).Outcome == core.Unknown
	if g.cfg.OnCrash != Report || !doubt {
		if released := g.store.Release(ctx, key, token, again || doubt); released != nil {
			return 0, fmt.Errorf("%w (giving the reservation back failed too: %v)", err, released) //nolint:errorlint // fn's error decides
		}
		return 0, err
	}
	if doubted := g.store.Doubt(ctx, key, token); doubted != nil {
		return 0, fmt.Errorf("%w (noting it as unknown failed too: %v)", err, doubted) //nolint:errorlint // fn's error decides
	}
	return g.counts.add(ctx, Uncertain), core.MarkRejected(fmt.Errorf("event %.64q: %w: %w", d.ID, ErrUnknown, err))
}

// run calls fn while it keeps the reservation.
func (g *Guard) run(ctx context.Context, key Key, token string, sent time.Time, fn Effect) error {
	ctx, cancel := context.WithCancelCause(ctx)
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		g.keep(ctx, cancel, key, token, sent)
	}()
	defer func() { // also when fn panics
		cancel(nil)
		<-kept
	}()
	err := fn(ctx)
	if err != nil && errors.Is(context.Cause(ctx), ErrLost) {
		return fmt.Errorf("%w: %w", ErrLost, err)
	}
	return err
}

// keep renews the lease at each third of it until ctx ends, and ends ctx when
// the lease is lost: by the store's word, or by its time since the last renewal
// was sent.
func (g *Guard) keep(ctx context.Context, cancel context.CancelCauseFunc, key Key, token string, sent time.Time) {
	timer := time.NewTimer(g.cfg.Lease / 3)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		asked := time.Now()
		call, done := context.WithDeadline(ctx, sent.Add(g.cfg.Lease))
		err := g.store.Renew(call, key, token, g.cfg.Lease)
		done()
		switch {
		case err == nil:
			sent = asked
			timer.Reset(g.cfg.Lease / 3)
		case errors.Is(err, ErrLost) || time.Since(sent) >= g.cfg.Lease:
			cancel(ErrLost)
			return
		default:
			timer.Reset(g.cfg.Lease / 10)
		}
	}
}

// finish marks the event, also when ctx has ended: the effect took place. It
// tries for as long as a lease lasts.
func (g *Guard) finish(ctx context.Context, key Key, token string, sent time.Time) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(g.cfg.Lease, time.Until(sent.Add(g.cfg.Lease))))
	defer cancel()
	for {
		err := g.store.Finish(ctx, key, token, g.cfg.Retention)
		if err == nil || errors.Is(err, ErrLost) || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(g.cfg.Lease / 30):
		}
	}
}

// lateAlone is late in a transaction of its own.
func (g *Guard) lateAlone(ctx context.Context, d consumer.Delivery) (late bool, err error) {
	if !g.cfg.Fence {
		return false, nil
	}
	err = g.store.Transaction(ctx, func(_ context.Context, tx Tx) error {
		answer, err := g.late(tx, []consumer.Delivery{d})
		if err == nil {
			late = answer[0]
		}
		return err
	})
	return late, err
}

// Outside makes the handler of an adapter: it has the effect by Reserve.
func (g *Guard) Outside(fn func(ctx context.Context, d consumer.Delivery, again bool) error) consumer.Handler {
	return func(ctx context.Context, d consumer.Delivery) error {
		_, err := g.Reserve(ctx, d, func(ctx context.Context, again bool) error { return fn(ctx, d, again) })
		return err
	}
}

// Unknowns lists events whose effect may have taken place, at most limit.
func (g *Guard) Unknowns(ctx context.Context, limit int) ([]Unknown, error) {
	return g.store.Unknowns(ctx, g.cfg.Consumer, limit)
}

// Resolve says what became of an unknown event: done, and it is marked; not
// done, and its next delivery has the effect. An event that isn't unknown is
// ErrNotUnknown.
func (g *Guard) Resolve(ctx context.Context, eventID string, done bool) error {
	return g.store.Resolve(ctx, Key{Consumer: g.cfg.Consumer, EventID: eventID}, done, g.cfg.Retention)
}
