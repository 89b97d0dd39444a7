package mongo

import (
	"context"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"

	"github.com/gooutbox/outbox/core"
)

var _ core.Queue = (*Store)(nil)

// lastRank is the rank of the lowest class.
var lastRank = core.Low.Rank()

// queue is what a Store knows of its jobs beside their documents.
type queue struct {
	// latest reads what this member of the set has, without waiting for the
	// majority. It is for reads that a fenced write follows, which waits.
	latest *mongo.Collection
	// now is this process's clock, which tests put wrong.
	now   func() time.Time
	clock serverClock
	// fresh is frontierFresh, except in tests.
	fresh time.Duration

	mu        sync.Mutex
	frontiers map[frontierKey]*frontier
}

func newQueue(jobs *mongo.Collection) queue {
	return queue{
		now:       time.Now,
		fresh:     frontierFresh,
		latest:    jobs.Clone(options.Collection().SetReadConcern(readconcern.Local())),
		frontiers: map[frontierKey]*frontier{},
	}
}

// lease is Claimed.Ref: which job, and by which right.
type lease struct {
	id    bson.RawValue
	token bson.Binary
	// parked jobs came from a cursor. All jobs of a token are alike in this.
	parked bool
}

func leaseOf(c *core.Claimed) (*lease, bool) {
	l, ok := c.Ref.(*lease)
	return l, ok
}

// byID hints that a filter with an _id reads by it: the indexes by state are
// never better.
const byID = "_id_"

// isDue matches a job that is due by the server's clock. A job without
// available_at is.
func isDue() bson.E {
	return bson.E{Key: "$expr", Value: op("$lte", bson.A{"$available_at", "$$NOW"})}
}

// fromNow is the server's time after a delay.
func fromNow(d time.Duration) bson.D {
	return op("$add", bson.A{"$$NOW", d.Milliseconds()})
}

// claimed shows a lent job to its worker.
func (s *Store) claimed(j *readJob, l *lease, claimedAt, deadline time.Time) *core.Claimed {
	return &core.Claimed{
		ID: jobName(j.id),
		Lease: core.Lease{
			Event: j.event, Deadline: deadline, Attempt: j.attempts + 1,
			Redelivered: j.redelivered || j.redeliveries > 0, Redriven: j.redriven, Source: s.Source(),
		},
		Sink: j.sink, Priority: j.priority, MaxAttempts: j.maxAttempts, Redeliveries: j.redeliveries,
		EnqueuedAt: j.enqueuedAt, AvailableAt: j.availableAt, ClaimedAt: claimedAt,
		Err: j.err, Ref: l,
	}
}

// serverClock tells about what time it is at the server, for what people read.
// Nothing is decided by it.
type serverClock struct {
	mu    sync.Mutex
	asked time.Time     // on this process's monotonic clock
	ahead time.Duration // of the server's clock before this process's
}

// clockFresh is for how long an answer is good.
const clockFresh = time.Minute

// serverTime is about the server's time, or this process's where the server
// can't be asked. It takes a round trip a minute.
func (s *Store) serverTime(ctx context.Context) time.Time {
	c := &s.queue.clock
	c.mu.Lock()
	stale := c.asked.IsZero() || time.Since(c.asked) > clockFresh
	c.mu.Unlock()
	if stale {
		sent := time.Now()
		if now, err := s.now(ctx); err == nil {
			ahead := now.Sub(s.queue.now().Add(-time.Since(sent) / 2))
			c.mu.Lock()
			c.ahead, c.asked = ahead, sent
			c.mu.Unlock()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return s.queue.now().Add(c.ahead).UTC().Truncate(time.Millisecond)
}
