package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/segmentio/kafka-go"

	"github.com/gooutbox/outbox/consumer"
)

// Run handles messages until ctx ends or the reader is closed. It then lets
// running handlers end, up to Config.Drain, commits what they did, and returns
// nil; for a closed reader the error is io.EOF.
func Run(ctx context.Context, cfg Config, handle consumer.Handler) error {
	cfg.Batch = 1
	return RunBatch(ctx, cfg, func(ctx context.Context, ds []consumer.Delivery) error { return handle(ctx, ds[0]) })
}

// RunBatch is Run with several messages of a partition a call.
func RunBatch(ctx context.Context, cfg Config, handle consumer.BatchHandler) error {
	if err := cfg.Validate(); err != nil {
		return fmt.Errorf("configuring the consumer: %w", err)
	}
	cfg = cfg.withDefaults()
	stopped, stop := context.WithCancel(ctx)
	defer stop()
	work, release := consumer.Draining(stopped, cfg.Drain)
	defer release()
	dead := newDeadLetters(cfg)
	defer dead.close()
	r := &run{cfg: cfg, handle: handle, dead: dead, commits: newCommitter(cfg), workers: map[partition]chan kafka.Message{}}
	committing := make(chan struct{})
	go func() {
		defer close(committing)
		r.commits.run(work)
	}()
	err := r.fetch(stopped, work)
	stop() // also when the reader was closed
	r.wg.Wait()
	r.commits.finish()
	<-committing
	return err
}

// partition of a topic.
type partition struct {
	topic  string
	number int
}

type run struct {
	cfg     Config
	handle  consumer.BatchHandler
	dead    *deadLetters
	commits *committer
	workers map[partition]chan kafka.Message
	wg      sync.WaitGroup
}

// fetch hands messages to the workers of their partitions.
func (r *run) fetch(ctx, work context.Context) error {
	wait := r.cfg.Retry.Backoff()
	for {
		m, err := r.cfg.Reader.FetchMessage(ctx)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // it was stopped
		case errors.Is(err, io.EOF):
			return fmt.Errorf("fetching messages: the reader was closed: %w", err)
		case err != nil:
			r.cfg.Logger.WarnContext(ctx, "fetching messages failed", "error", err)
			if !consumer.Sleep(ctx, nil, wait()) {
				return nil
			}
			continue
		}
		wait = r.cfg.Retry.Backoff()
		p := partition{m.Topic, m.Partition}
		queue := r.workers[p]
		if queue == nil {
			queue = make(chan kafka.Message, r.cfg.Buffer)
			r.workers[p] = queue
			r.wg.Go(func() { r.worker(ctx, work, queue) })
		}
		select {
		case queue <- m:
		case <-ctx.Done():
			return nil
		}
	}
}

// worker handles the messages of one partition until ctx ends.
func (r *run) worker(ctx, work context.Context, queue <-chan kafka.Message) {
	for {
		var messages []kafka.Message
		select {
		case <-ctx.Done():
			return
		case m := <-queue:
			messages = append(messages, m)
		}
		for more := true; more && len(messages) < r.cfg.Batch; {
			select {
			case m := <-queue:
				messages = append(messages, m)
			default:
				more = false
			}
		}
		if !r.batch(ctx, work, messages) {
			return
		}
	}
}

// batch handles messages that follow one another, and commits those that are
// done. It returns false when it was stopped.
func (r *run) batch(ctx, work context.Context, messages []kafka.Message) bool {
	ds := make([]consumer.Delivery, 0, len(messages))
	at := make([]int, 0, len(messages)) // where each of ds lies in messages
	bad := map[int]error{}
	for i, m := range messages {
		d, err := Decode(m, r.cfg.Form)
		if err != nil {
			bad[i] = err
			continue
		}
		ds, at = append(ds, d), append(at, i)
	}
	next := 0 // the first message that isn't done
	done := func(until int, death *consumer.Death) bool {
		for ; next < until; next++ {
			if !r.dead.put(ctx, work, messages[next], consumer.Undecodable(bad[next])) {
				return false
			}
			r.commits.done(messages[next])
		}
		if until == len(messages) {
			return true
		}
		if death != nil && !r.dead.put(ctx, work, messages[until], death) {
			return false
		}
		r.commits.done(messages[until])
		next = until + 1
		return true
	}
	stopped := false
	r.cfg.Retry.AttemptBatch(work, ctx.Done(), r.cfg.Logger, ds, r.handle, func(i int, death *consumer.Death, err error) bool {
		stopped = err != nil || !done(at[i], death)
		return !stopped
	})
	return !stopped && done(len(messages), nil)
}
