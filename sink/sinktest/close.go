package sinktest

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gooutbox/outbox/core"
)

func closeTwice(t *testing.T, d Destination) {
	s := d.open(t)
	mustDeliver(t, s, lease("before", 100))
	closeSink(t, s)
	closeSink(t, s)
	leases := keys("closed", 3, 100)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	results := deliver(t, ctx, s, leases...)
	for i, r := range results {
		if r.Outcome == core.Delivered {
			t.Errorf("result %d of a closed sink is delivered", i)
		}
	}
	checkTruth(t, d.received(t), leases, results)
	closeSink(t, s)
}

func closeUnderLoad(t *testing.T, d Destination) {
	s := d.open(t)
	const callers = 4
	var leases [callers][]core.Lease
	var results [callers][]core.Result
	under := make(chan struct{}, callers)
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for n := 0; ; n++ {
				call := keys(fmt.Sprintf("load-%d-%d", c, n), 5, 500)
				answers := s.Deliver(context.Background(), call)
				leases[c], results[c] = append(leases[c], call...), append(results[c], answers...)
				if n == 2 {
					under <- struct{}{}
				}
				if answers[0].Outcome != core.Delivered {
					return
				}
			}
		})
	}
	for range callers {
		<-under
	}
	closeSink(t, s)
	ended := make(chan struct{})
	go func() { wg.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Fatal("calls of Deliver still run after the sink was closed")
	}
	mustDeliver(t, d.open(t), lease("after", 100))
	there := d.received(t)
	for c := range callers {
		checkTruth(t, there, leases[c], results[c])
	}
}

func noGoroutineIsLeft(t *testing.T, d Destination) {
	before := goroutines()
	s := d.Open(t)
	mustDeliver(t, s, keys("work", 20, 100)...)
	for _, cut := range cuts {
		ctx, cancel := context.WithTimeout(t.Context(), cut)
		deliver(t, ctx, s, keys("cut", 5, 100)...)
		cancel()
	}
	if d.Freeze != nil {
		thaw := d.Freeze(t)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		deliver(t, ctx, s, keys("frozen", 5, 100)...)
		cancel()
		defer thaw()
	}
	closeSink(t, s)
	var left []string
	eventuallyOr(t, func() bool {
		left = left[:0]
		for id, stack := range goroutines() {
			if _, was := before[id]; !was {
				left = append(left, stack)
			}
		}
		return len(left) == 0
	}, func() {
		t.Errorf("the sink is closed and left %d goroutines:\n%s", len(left), strings.Join(left, "\n\n"))
	})
}

func eventuallyOr(t testing.TB, ok func() bool, otherwise func()) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(5 * time.Second); !ok(); <-tick.C {
		if time.Now().After(end) {
			otherwise()
			return
		}
	}
}

// goroutines maps the ids of all goroutines to their stacks.
func goroutines() map[string]string {
	buf := make([]byte, 1<<20)
	for {
		n := runtime.Stack(buf, true)
		if n < len(buf) {
			buf = buf[:n]
			break
		}
		buf = make([]byte, 2*len(buf))
	}
	all := map[string]string{}
	for _, stack := range strings.Split(string(buf), "\n\n") {
		head, _, _ := strings.Cut(stack, " [")
		all[head] = stack
	}
	return all
}
