package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gooutbox/outbox/consumer"
	"github.com/gooutbox/outbox/core"
)

var errHandler = errors.New("the printer is jammed")

// attempt runs a handler that returns the errors in turn, then nil.
func attempt(t *testing.T, ctx context.Context, stop <-chan struct{}, ends ...error) (death *consumer.Death, err error, tries int) { //nolint:revive,staticcheck // in the order of Attempt
	t.Helper()
	r := consumer.Retry{MaxAttempts: 3, MinBackoff: time.Second, MaxBackoff: 8 * time.Second}
	death, err = r.Attempt(ctx, stop, nil, consumer.Delivery{}, func(context.Context, consumer.Delivery) error {
		if tries++; tries <= len(ends) {
			return ends[tries-1]
		}
		return nil
	})
	return death, err, tries
}

func TestWhatCountsAsAnAttempt(t *testing.T) {
	t.Parallel()
	away := core.MarkUnavailable(errHandler)
	for name, c := range map[string]struct {
		ends     []error
		tries    int
		code     string
		attempts int
	}{
		"a success":         {nil, 1, "", 0},
		"a failure":         {[]error{errHandler}, 2, "", 0},
		"too many":          {slices.Repeat([]error{errHandler}, 9), 3, core.CodeExhausted, 3},
		"a rejection":       {[]error{errHandler, core.MarkRejected(errHandler)}, 2, core.CodeRejected, 2},
		"an outage":         {append(slices.Repeat([]error{away}, 50), errHandler, errHandler), 53, "", 0},
		"in flight":         {slices.Repeat([]error{core.MarkThrottled(errHandler, time.Hour)}, 20), 21, "", 0},
		"an unknown effect": {slices.Repeat([]error{core.MarkUnknown(errHandler)}, 9), 3, core.CodeExhausted, 3},
		"no payload":        {[]error{core.MarkRejected(&consumer.DecodeError{Field: "Payload", Problem: "is no T"})}, 1, core.CodeUndecodable, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				death, err, tries := attempt(t, t.Context(), nil, c.ends...)
				if err != nil || tries != c.tries || (death == nil) != (c.code == "") {
					t.Fatalf("%d tries, %+v, %v", tries, death, err)
				}
				if death != nil && (death.Code != c.code || death.Attempts != c.attempts || death.Reason == "") {
					t.Errorf("died of %+v", death)
				}
			})
		})
	}
}

func TestAPanicIsAFailure(t *testing.T) {
	t.Parallel()
	death, err := consumer.Retry{MaxAttempts: 1}.Attempt(t.Context(), nil, nil, consumer.Delivery{}, func(context.Context, consumer.Delivery) error {
		panic("index out of range")
	})
	if err != nil || death == nil {
		t.Fatalf("%v, %v", death, err)
	}
	if p, ok := errors.AsType[*consumer.PanicError](death.Err); !ok || len(p.Stack) == 0 {
		t.Errorf("died of %v", death.Err)
	}
}

func TestAStopEndsTheWaitAndNotTheRun(t *testing.T) {
	t.Parallel()
	stop := make(chan struct{})
	close(stop)
	if _, err, tries := attempt(t, t.Context(), stop); !errors.Is(err, consumer.ErrStopped) || tries != 0 {
		t.Errorf("stopped before: %v, %d tries", err, tries)
	}
	stop = make(chan struct{})
	running := func(context.Context, consumer.Delivery) error {
		close(stop)
		return nil
	}
	if death, err := (consumer.Retry{}).Attempt(t.Context(), stop, nil, consumer.Delivery{}, running); death != nil || err != nil {
		t.Errorf("stopped while it ran: %v, %v", death, err)
	}
	synctest.Test(t, func(t *testing.T) {
		stop := make(chan struct{})
		time.AfterFunc(1500*time.Millisecond, func() { close(stop) })
		if _, err, _ := attempt(t, t.Context(), stop, slices.Repeat([]error{core.MarkThrottled(errHandler, time.Hour)}, 9)...); !errors.Is(err, consumer.ErrStopped) {
			t.Errorf("stopped while it waited: %v", err)
		}
	})
}

func TestABadEventDoesNotSpoilItsBatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ds := make([]consumer.Delivery, 4)
		for i := range ds {
			ds[i].ID = fmt.Sprint(i)
		}
		outage := 3
		var calls []int
		var ends []string
		consumer.Retry{MaxAttempts: 2}.AttemptBatch(t.Context(), nil, nil, ds, func(_ context.Context, ds []consumer.Delivery) error {
			calls = append(calls, len(ds))
			if outage--; outage > 0 {
				return core.MarkUnavailable(errHandler)
			}
			for _, d := range ds {
				if d.ID == "2" {
					return errHandler
				}
			}
			return nil
		}, func(i int, death *consumer.Death, err error) bool {
			ends = append(ends, fmt.Sprint(i, death != nil, err))
			return true
		})
		if want := []int{4, 4, 4, 1, 1, 1, 1, 1}; !slices.Equal(calls, want) {
			t.Errorf("called with %v, want %v", calls, want)
		}
		if want := []string{"0 false <nil>", "1 false <nil>", "2 true <nil>", "3 false <nil>"}; !slices.Equal(ends, want) {
			t.Errorf("ended %v", ends)
		}
	})
}

// What waits behind a message that was given back is given back as well; what
// comes after that is not.
func TestNothingOvertakesWhatWasGivenBack(t *testing.T) {
	t.Parallel()
	lanes := consumer.NewLanes(3, 100)
	started, goOn := make(chan struct{}), make(chan struct{})
	var skipped []string
	lanes.Go("a", func(bool) bool {
		close(started)
		<-goOn
		return false
	})
	<-started
	work := func(name string) consumer.Work {
		return func(skip bool) bool {
			if skip {
				skipped = append(skipped, name)
			}
			return !skip
		}
	}
	lanes.Go("a", work("a2"))
	lanes.Go("a", work("a3"))
	other := make(chan bool, 1)
	for i := range 20 { // some share the lane
		lanes.Go(fmt.Sprint("other", i), func(skip bool) bool {
			if skip {
				other <- true
			}
			return true
		})
	}
	close(goOn)
	settled := make(chan struct{})
	lanes.Go("a", func(bool) bool { // comes when the first may not have ended
		close(settled)
		return true
	})
	<-settled
	lanes.Go("a", work("a1 again"))
	lanes.Wait()
	if !slices.Equal(skipped, []string{"a2", "a3"}) || len(other) > 0 {
		t.Errorf("skipped: %v, of others %d", skipped, len(other))
	}
}

func TestHandlersMayGoOnForAWhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		work, release := consumer.Draining(ctx, 5*time.Second)
		defer release()
		began := time.Now()
		cancel()
		<-work.Done()
		if after := time.Since(began); after != 5*time.Second {
			t.Errorf("ended after %v", after)
		}
	})
}
