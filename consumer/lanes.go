package consumer

import (
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"
)

// Lanes run work of different keys side by side, and that of one key one after
// the other in the order of Go.
type Lanes struct {
	seed   maphash.Seed
	queues []chan job
	// asked counts the calls of Go.
	asked atomic.Int64
	wg    sync.WaitGroup
}

type job struct {
	key    string
	number int64
	work   Work
}

// Work handles one message. It returns false when the message was given back and
// comes again: the later messages of its key that were there at that time would
// overtake it. They are called with skip, and are to be given back too.
type Work func(skip bool) (done bool)

// NewLanes starts n lanes. most is how much work there is at once at most; Go
// waits beyond it.
func NewLanes(n, most int) *Lanes {
	l := &Lanes{seed: maphash.MakeSeed(), queues: make([]chan job, n)}
	for i := range l.queues {
		queue := make(chan job, most)
		l.queues[i] = queue
		l.wg.Go(func() { l.run(queue) })
	}
	return l
}

func (l *Lanes) run(queue <-chan job) {
	// last is, for a key of which a message was given back, the last one that was
	// there then.
	last := map[string]int64{}
	for j := range queue {
		number, skip := last[j.key]
		if skip && j.number > number {
			delete(last, j.key)
			skip = false
		}
		if !j.work(skip) && !skip {
			last[j.key] = l.asked.Load()
		}
	}
}

// Go runs work in the lane of the key. It is not called after Wait, nor by
// several goroutines at once.
func (l *Lanes) Go(key string, work Work) {
	l.queues[maphash.String(l.seed, key)%uint64(len(l.queues))] <- job{key, l.asked.Add(1), work}
}

// Wait returns when all work is done, and ends the lanes.
func (l *Lanes) Wait() {
	for _, queue := range l.queues {
		close(queue)
	}
	l.wg.Wait()
}

// DefaultDrain is how long handlers may go on after a shutdown began.
const DefaultDrain = 30 * time.Second

// Draining returns a context for handlers: it ends when drain has passed since
// ctx ended. Call release when all handlers have returned.
func Draining(ctx context.Context, drain time.Duration) (work context.Context, release func()) {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.NewTimer(drain)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel()
		case <-work.Done():
		}
	})
	return work, func() {
		stop()
		cancel()
	}
}

// Sleep waits, and tells whether neither ctx nor stop ended meanwhile.
func Sleep(ctx context.Context, stop <-chan struct{}, d time.Duration) bool {
	return sleep(ctx, stop, d)
}
