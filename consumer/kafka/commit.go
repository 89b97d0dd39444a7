package kafka

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/gooutbox/outbox/consumer"
)

// committer commits the last message that is done of each partition. Workers
// don't wait for it: a commit that is late repeats messages at worst.
type committer struct {
	cfg Config
	mu  sync.Mutex
	// pending is the last done message of each partition.
	pending map[partition]kafka.Message
	wake    chan struct{}
	ended   chan struct{}
}

func newCommitter(cfg Config) *committer {
	return &committer{cfg: cfg, pending: map[partition]kafka.Message{}, wake: make(chan struct{}, 1), ended: make(chan struct{})}
}

func (c *committer) done(m kafka.Message) {
	m.Value, m.Headers = nil, nil
	c.mu.Lock()
	c.pending[partition{m.Topic, m.Partition}] = m
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *committer) take() []kafka.Message {
	c.mu.Lock()
	defer c.mu.Unlock()
	messages := slices.Collect(maps.Values(c.pending))
	clear(c.pending)
	return messages
}

// putBack returns what was not committed, where nothing newer is there.
func (c *committer) putBack(messages []kafka.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range messages {
		if p := (partition{m.Topic, m.Partition}); c.pending[p].Topic == "" {
			c.pending[p] = m
		}
	}
}

// lastCommit bounds the commit at the end.
const lastCommit = 10 * time.Second

// run commits until finish is called, and then once more.
func (c *committer) run(ctx context.Context) {
	wait := c.cfg.Retry.Backoff()
	call, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	go func() { // a commit that is under way at the end has its time
		select {
		case <-c.ended:
			consumer.Sleep(call, nil, lastCommit)
			cancel()
		case <-call.Done():
		}
	}()
	for last := false; !last; {
		select {
		case <-c.wake:
		case <-c.ended:
			last = true
		}
		messages := c.take()
		if len(messages) == 0 {
			continue
		}
		err := c.cfg.Reader.CommitMessages(call, messages...)
		if err == nil {
			wait = c.cfg.Retry.Backoff()
			continue
		}
		c.cfg.Logger.WarnContext(ctx, "committing offsets failed", "error", err)
		c.putBack(messages)
		if !last {
			consumer.Sleep(call, c.ended, wait())
			select {
			case c.wake <- struct{}{}:
			default:
			}
		}
	}
}

// finish lets run commit what is done, and end.
func (c *committer) finish() { close(c.ended) }
