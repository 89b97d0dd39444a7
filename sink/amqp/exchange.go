package amqp

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/gooutbox/outbox/core"
)

const (
	// exchangeAge is for how long an exchange that was found is taken to exist.
	exchangeAge = time.Minute
	// refusedAge is for how long one that isn't there, or that is closed to us,
	// isn't asked for again.
	refusedAge = time.Second
	// maxExchanges bounds what is remembered, whatever the events are.
	maxExchanges = 10_000
)

// exchangeState is what is known of one. It is never changed, only replaced.
type exchangeState struct {
	fresh time.Time // until when it holds
	// err, marked with its outcome, is why nothing can be sent there.
	err error
	// careful: a message for it may have cost a channel, so that the next one
	// goes alone.
	careful bool
}

// exchange looks for an exchange on a channel of its own, since the answer for
// one that doesn't exist closes the channel. The error is marked: as refused
// where only this exchange is concerned.
func (se *session) exchange(ctx context.Context, name string) (*exchangeState, error) {
	if x := se.known(name); x != nil {
		return x, x.err
	}
	select {
	case se.asking <- struct{}{}:
		defer func() { <-se.asking }()
	case <-ctx.Done():
		return nil, core.MarkNotAttempted(ctx.Err())
	}
	if x := se.known(name); x != nil {
		return x, x.err
	}
	var err error
	if name != "" { // the default exchange always exists, and can't be asked for
		_, err = ask(ctx, se, "looking for exchange "+name, func() (struct{}, error) { return struct{}{}, se.find(name) }, nil)
	}
	refusal, ok := errors.AsType[*amqp091.Error](err)
	switch {
	case err == nil:
		return se.learn(name, nil, exchangeAge), nil
	case core.ResultOf("", err).Outcome != core.Refused:
		return nil, err // has a mark
	case ok && refusal.Code == amqp091.NotFound:
		err = missing(name, refusal)
		return se.learn(name, err, refusedAge), err
	case ok && refusal.Server:
		err = fmt.Errorf("looking for exchange %q: %w", name, err)
		return se.learn(name, err, refusedAge), err
	}
	return nil, core.MarkUnavailable(fmt.Errorf("looking for exchange %q: %w", name, err))
}

func (se *session) find(name string) error {
	ch, err := se.conn.Channel()
	if err != nil {
		return core.MarkUnavailable(err)
	}
	if err := ch.ExchangeDeclarePassive(name, amqp091.ExchangeTopic, true, false, false, false, nil); err != nil {
		return err
	}
	return ch.Close()
}

func missing(name string, err error) error {
	return fmt.Errorf("exchange %q doesn't exist: declare it, or correct the sink's exchange: %w", name, err)
}

// known returns what is known of an exchange and still holds, or nil.
func (se *session) known(name string) *exchangeState {
	se.mu.Lock()
	defer se.mu.Unlock()
	x := se.exchanges[name]
	if x == nil || time.Now().After(x.fresh) {
		return nil
	}
	return x
}

// learn notes that an exchange exists, or why it can't be used. Whether it needs
// care doesn't change by that.
func (se *session) learn(name string, err error, age time.Duration) *exchangeState {
	return se.change(name, func(x *exchangeState) { x.err, x.fresh = err, time.Now().Add(age) })
}

// trust ends the care for an exchange that took a message, or begins it.
func (se *session) trust(name string, trusted bool) {
	se.mu.Lock()
	same := se.exchanges[name] != nil && se.exchanges[name].careful != trusted
	se.mu.Unlock()
	if !same {
		se.change(name, func(x *exchangeState) { x.careful = !trusted })
	}
}

func (se *session) change(name string, by func(*exchangeState)) *exchangeState {
	se.mu.Lock()
	defer se.mu.Unlock()
	if len(se.exchanges) >= maxExchanges {
		clear(se.exchanges)
	}
	var x exchangeState
	if before := se.exchanges[name]; before != nil {
		x = *before
	}
	by(&x)
	se.exchanges[name] = &x
	return &x
}
