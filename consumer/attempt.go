package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/gooutbox/outbox/core"
)

// Retry says how often and how fast a handler is tried. The zero value has the
// defaults.
type Retry struct {
	// MaxAttempts is how often a handler may fail for one message before the
	// message is a dead letter. Defaults to 10.
	MaxAttempts int
	// MinBackoff is the wait after the first failure; it doubles up to
	// MaxBackoff. Each is spread by half of itself. They default to 1 second and
	// 1 minute.
	MinBackoff, MaxBackoff time.Duration
}

// Defaults of Retry.
const (
	DefaultMaxAttempts = core.DefaultMaxAttempts
	DefaultMinBackoff  = time.Second
	DefaultMaxBackoff  = time.Minute
)

// OrDefaults returns r with its zero fields set to the defaults.
func (r Retry) OrDefaults() Retry {
	if r.MaxAttempts == 0 {
		r.MaxAttempts = DefaultMaxAttempts
	}
	if r.MinBackoff == 0 {
		r.MinBackoff = DefaultMinBackoff
	}
	if r.MaxBackoff == 0 {
		r.MaxBackoff = max(DefaultMaxBackoff, r.MinBackoff)
	}
	return r
}

// Validate reports all problems at once, or nil.
func (r Retry) Validate() error {
	r = r.OrDefaults()
	var errs []error
	add := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s "+format, append([]any{field}, args...)...))
	}
	if r.MaxAttempts < 0 {
		add("MaxAttempts", "is negative: use 1 for a single try")
	}
	if r.MinBackoff < 0 || r.MaxBackoff < r.MinBackoff {
		add("MinBackoff and MaxBackoff", "are not as wanted: use positive times, the larger one last")
	}
	return errors.Join(errs...)
}

// ErrStopped tells that a message was neither handled nor given up: give it
// back.
var ErrStopped = errors.New("stopped before the message was handled")

// Attempt tries the handler until it succeeds, and waits in between. It returns
// nil, nil after a success; a Death when the message is to be given up; and
// ErrStopped when ctx ended, or when stop was closed and the handler has not
// succeeded. A handler that runs when stop is closed may end its run; ctx is
// its context. log may be nil.
func (r Retry) Attempt(ctx context.Context, stop <-chan struct{}, log *slog.Logger, d Delivery, handle Handler) (*Death, error) {
	r = r.OrDefaults()
	wait := r.backoff()
	for attempts := 0; ; {
		if ended(ctx, stop) {
			return nil, ErrStopped
		}
		err := safely(ctx, func(ctx context.Context) error { return handle(ctx, d) })
		if err == nil {
			return nil, nil
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%w: %w", ErrStopped, err)
		}
		result := core.ResultOf("", err)
		pause := result.RetryAfter
		switch result.Outcome {
		case core.Rejected:
			code := core.CodeRejected
			if _, ok := errors.AsType[*DecodeError](err); ok {
				code = core.CodeUndecodable
			}
			return deathOf(code, attempts+1, err), nil
		case core.Throttled, core.Unavailable, core.NotAttempted:
		default:
			if attempts++; attempts >= r.MaxAttempts {
				return deathOf(core.CodeExhausted, attempts, err), nil
			}
		}
		if pause <= 0 {
			pause = wait.NextBackOff()
		}
		if log != nil && result.Outcome != core.Throttled {
			log.WarnContext(ctx, "a handler failed and is tried again", "event", d.ID, "type", d.Type,
				"outcome", result.Outcome.String(), "attempts", attempts, "pause", pause.String(), "error", err)
		}
		if !sleep(ctx, stop, pause) {
			return nil, fmt.Errorf("%w: %w", ErrStopped, err)
		}
	}
}

// AttemptBatch calls the handler once for all, and after a failure that is not a
// matter of waiting one by one: it then ends each by each, in the order of ds.
func (r Retry) AttemptBatch(ctx context.Context, stop <-chan struct{}, log *slog.Logger, ds []Delivery, handle BatchHandler, each func(i int, death *Death, err error) bool) {
	if len(ds) > 1 && !ended(ctx, stop) && r.whole(ctx, stop, log, ds, handle) {
		for i := range ds {
			if !each(i, nil, nil) {
				return
			}
		}
		return
	}
	for i, d := range ds {
		death, err := r.Attempt(ctx, stop, log, d, handle.Single())
		if !each(i, death, err) {
			return
		}
	}
}

// whole tries the batch until it succeeds, or fails by something other than
// waiting.
func (r Retry) whole(ctx context.Context, stop <-chan struct{}, log *slog.Logger, ds []Delivery, handle BatchHandler) bool {
	wait := r.OrDefaults().backoff()
	for {
		err := safely(ctx, func(ctx context.Context) error { return handle(ctx, ds) })
		if err == nil {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		result := core.ResultOf("", err)
		pause := result.RetryAfter
		switch result.Outcome {
		case core.Throttled, core.Unavailable, core.NotAttempted:
		default:
			if log != nil {
				log.WarnContext(ctx, "a batch failed and is tried one by one", "events", len(ds), "error", err)
			}
			return false
		}
		if pause <= 0 {
			pause = wait.NextBackOff()
		}
		if !sleep(ctx, stop, pause) {
			return false
		}
	}
}

func (r Retry) backoff() *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval, b.Multiplier, b.MaxElapsedTime = r.MinBackoff, r.MaxBackoff, 2, 0
	b.Reset()
	return b
}

// Backoff is that of a loop against a broker: the waits between its calls that
// fail.
func (r Retry) Backoff() func() time.Duration { return r.OrDefaults().backoff().NextBackOff }

// PanicError is a panic of a handler.
type PanicError struct {
	// Value is what it panicked with, and Stack where.
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("the handler panicked: %v", e.Value) }

// safely makes an error of a panic.
func safely(ctx context.Context, fn func(context.Context) error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return fn(ctx)
}

func ended(ctx context.Context, stop <-chan struct{}) bool {
	select {
	case <-stop:
		return true
	default:
		return ctx.Err() != nil
	}
}

// sleep waits, and tells whether neither ctx nor stop ended meanwhile.
func sleep(ctx context.Context, stop <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(max(d, 0))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-stop:
		return false
	case <-timer.C:
		return ctx.Err() == nil
	}
}
