package mailstore

import (
	"context"
	"errors"
	"sync"
	"time"
)

// maxGathered bounds the calls that share a command.
const maxGathered = 100

// gatherer lets calls that wait at the same time share a command. Each command
// runs by itself: while one is under way, the next is gathered.
type gatherer[Q, A any] struct {
	wait    time.Duration
	timeout time.Duration
	// run answers each of the calls, at its place.
	run func(ctx context.Context, asked []Q) []answer[A]

	mu      sync.Mutex
	pending []*call[Q, A]
	running bool
	// last is how many shared the last command: alone, nobody is waited for.
	last int
}

type answer[A any] struct {
	value A
	err   error
}

type call[Q, A any] struct {
	asked Q
	// done has room for the answer, so that nobody waits for who went away.
	done chan answer[A]
	// withdrawn: its caller has gone before the command was begun.
	withdrawn bool
}

func newGatherer[Q, A any](cfg Config, run func(ctx context.Context, asked []Q) []answer[A]) *gatherer[Q, A] {
	return &gatherer[Q, A]{wait: cfg.Gather, timeout: cfg.Timeout, run: run}
}

// do asks and waits for the answer, or until ctx ends: a command that has begun
// by then goes on.
func (g *gatherer[Q, A]) do(ctx context.Context, asked Q) (A, error) {
	var none A
	if err := ctx.Err(); err != nil {
		return none, err
	}
	c := &call[Q, A]{asked: asked, done: make(chan answer[A], 1)}
	g.mu.Lock()
	g.pending = append(g.pending, c)
	if !g.running {
		g.running = true
		go g.drain()
	}
	g.mu.Unlock()
	select {
	case a := <-c.done:
		return a.value, a.err
	case <-ctx.Done():
		g.mu.Lock()
		c.withdrawn = true
		g.mu.Unlock()
		return none, ctx.Err()
	}
}

// drain runs commands until nobody waits.
func (g *gatherer[Q, A]) drain() {
	for {
		g.mu.Lock()
		alone := len(g.pending) <= 1 && g.last <= 1
		g.mu.Unlock()
		if !alone && g.wait > 0 {
			time.Sleep(g.wait)
		}
		calls := g.take()
		if calls == nil {
			return
		}
		asked := make([]Q, len(calls))
		for i, c := range calls {
			asked[i] = c.asked
		}
		for i, a := range g.answers(asked) {
			calls[i].done <- a
		}
	}
}

// take takes the calls of the next command; nil if there are none.
func (g *gatherer[Q, A]) take() []*call[Q, A] {
	g.mu.Lock()
	defer g.mu.Unlock()
	var calls []*call[Q, A]
	for len(g.pending) > 0 && len(calls) < maxGathered {
		if c := g.pending[0]; !c.withdrawn {
			calls = append(calls, c)
		}
		g.pending = g.pending[1:]
	}
	g.last = len(calls)
	if len(calls) == 0 {
		g.running, g.pending = false, nil
	}
	return calls
}

func (g *gatherer[Q, A]) answers(asked []Q) []answer[A] {
	ctx, cancel := context.WithTimeout(context.Background(), g.timeout)
	defer cancel()
	answers := g.run(ctx, asked)
	for len(answers) < len(asked) {
		answers = append(answers, answer[A]{err: errors.New("the command answered too little")})
	}
	return answers
}

// allAlike answers all calls alike.
func allAlike[A any](n int, err error) []answer[A] {
	answers := make([]answer[A], n)
	for i := range answers {
		answers[i].err = err
	}
	return answers
}
