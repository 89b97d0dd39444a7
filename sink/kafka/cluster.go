package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/metadata"

	"github.com/gooutbox/outbox/core"
)

const (
	// metadataAge is how old the picture of a topic may be: within it an
	// increase of its partitions goes unnoticed.
	metadataAge = time.Minute
	// absentAge is the same for a topic that can't be used.
	absentAge = time.Second
	// creationWait is how long a call waits for a topic that is being created.
	// After it did so in vain, none waits for vainAge: the events of other
	// topics wait with it.
	creationWait = 5 * time.Second
	vainAge      = time.Minute
	// maxTopics bounds what is remembered, whatever the events' types are.
	maxTopics = 10_000
	// maxTries bounds how many brokers are asked one question.
	maxTries = 5
)

// cluster is what is known of brokers and topics.
type cluster struct {
	dial    *dialer
	timeout time.Duration
	create  bool
	limit   int // configured bytes of a message, 0 if the topics decide
	boot    []*broker
	// refreshing is held by the one that asks the brokers.
	refreshing chan struct{}
	// wait is how long a call waits for a topic to be created, from patient on.
	// Both belong to the one that holds refreshing.
	wait    time.Duration
	patient time.Time

	mu     sync.Mutex
	nodes  map[int32]*broker
	topics map[string]*topic
	closed bool
}

// topic is never changed, only replaced.
type topic struct {
	name string
	// leaders has the broker of each partition, nil where there is none.
	leaders []*broker
	// err, marked with its outcome, is why nothing can be sent.
	err error
	// fresh is until when this picture holds; zero once it proved wrong.
	fresh time.Time
	sizeLimit
}

func newCluster(cfg *Config, d *dialer) *cluster {
	c := &cluster{
		dial: d, timeout: cfg.RequestTimeout, create: cfg.CreateTopics, limit: cfg.MaxMessageBytes,
		refreshing: make(chan struct{}, 1), wait: creationWait,
		nodes: map[int32]*broker{}, topics: map[string]*topic{},
	}
	for _, addr := range cfg.Brokers {
		c.boot = append(c.boot, &broker{addr: addr, dial: d})
	}
	return c
}

// lookup returns the named topics in the order of names. An error, marked with
// its outcome, means that the call has ended and nothing can be sent.
func (c *cluster) lookup(ctx context.Context, names []string) ([]*topic, error) {
	found, old := c.known(names)
	if len(old) == 0 {
		return found, nil
	}
	select {
	case c.refreshing <- struct{}{}:
		defer func() { <-c.refreshing }()
	case <-ctx.Done():
		return nil, core.MarkNotAttempted(ctx.Err())
	}
	if found, old = c.known(names); len(old) == 0 { // another call asked meanwhile
		return found, nil
	}
	err := c.refresh(ctx, old)
	if err != nil && ctx.Err() != nil {
		return nil, err
	}
	// Pictures that are only old may still do, and those that are missing
	// concern no other topic.
	found, _ = c.known(names)
	c.trim()
	for i, t := range found {
		switch {
		case err != nil && (t == nil || t.fresh.IsZero()):
			found[i] = &topic{name: names[i], err: err}
		case t == nil:
			lacks := fmt.Errorf("asking Kafka for its topics: the answer lacks topic %q", names[i])
			found[i] = &topic{name: names[i], err: core.MarkUnavailable(lacks)}
		}
	}
	return found, nil
}

// known returns what is known of the topics, and the names of those whose
// picture is missing or old.
func (c *cluster) known(names []string) (found []*topic, old []string) {
	now := time.Now()
	found = make([]*topic, len(names))
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, name := range names {
		t := c.topics[name]
		found[i] = t
		if t == nil || now.After(t.fresh) {
			old = append(old, name)
		}
	}
	return found, old
}

// distrust makes the next call ask for the topic again.
func (c *cluster) distrust(name string) {
	c.change(name, func(t *topic) { t.fresh, t.checked = time.Time{}, time.Time{} })
}

// change replaces what is known of a topic, if anything is.
func (c *cluster) change(name string, by func(*topic)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.topics[name]; t != nil {
		again := *t
		by(&again)
		c.topics[name] = &again
	}
}

// trim forgets topics when there are too many: those that can't be used, then
// any.
func (c *cluster) trim() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.topics) <= maxTopics {
		return
	}
	maps.DeleteFunc(c.topics, func(_ string, t *topic) bool { return t.err != nil })
	for name := range c.topics {
		if len(c.topics) <= maxTopics/2 {
			return
		}
		delete(c.topics, name)
	}
}

func (c *cluster) refresh(ctx context.Context, names []string) error {
	began := time.Now()
	res, err := c.describe(ctx, names, c.create)
	waits := c.create && began.After(c.patient)
	for wait := 25 * time.Millisecond; waits && err == nil && creating(res); wait *= 2 {
		if time.Since(began) > c.wait {
			c.patient = time.Now().Add(vainAge)
			break
		}
		if err := sleep(ctx, min(wait, 400*time.Millisecond)); err != nil {
			return core.MarkNotAttempted(err)
		}
		res, err = c.describe(ctx, names, c.create)
	}
	if err != nil {
		return err
	}
	c.learn(res)
	c.refreshLimits(ctx, names)
	return nil
}

// describe asks any broker for its picture of the topics.
func (c *cluster) describe(ctx context.Context, names []string, create bool) (*metadata.Response, error) {
	m, err := c.ask(ctx, &metadata.Request{TopicNames: names, AllowAutoTopicCreation: create, IncludeTopicAuthorizedOperations: true})
	if err != nil {
		if ended := ctx.Err(); ended != nil {
			return nil, core.MarkNotAttempted(ended)
		}
		return nil, core.MarkUnavailable(fmt.Errorf("asking Kafka for its topics: %w", err))
	}
	return m.(*metadata.Response), nil
}

// ask sends a request that any broker can answer to one after the other until
// one does.
func (c *cluster) ask(ctx context.Context, req protocol.Message) (protocol.Message, error) {
	deadline := time.Now().Add(c.timeout)
	var errs []error
	for _, b := range c.candidates() {
		try := earlier(deadline, time.Now().Add(max(c.timeout/3, minRequestTimeout)))
		res, _, err := b.roundTrip(ctx, try, req)
		if err == nil {
			return res, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", b.addr, err))
		if ctx.Err() != nil || time.Now().After(deadline) {
			break
		}
	}
	return nil, errors.Join(errs...)
}

// candidates are some of the known brokers and some that were configured, in
// random order.
func (c *cluster) candidates() []*broker {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := map[string]bool{}
	var out []*broker
	add := func(b *broker) {
		if !seen[b.addr] && len(out) < maxTries {
			seen[b.addr] = true
			out = append(out, b)
		}
	}
	for _, b := range c.nodes { // in random order
		if len(out) == maxTries-1 {
			break
		}
		add(b)
	}
	for _, i := range rand.Perm(len(c.boot)) {
		add(c.boot[i])
	}
	return out
}

func (c *cluster) learn(res *metadata.Response) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.learnNodes(res.Brokers)
	for i := range res.Topics {
		rt := &res.Topics[i]
		t := &topic{name: rt.Name, fresh: now.Add(metadataAge)}
		if t.err = topicError(rt, c.create); t.err == nil {
			t.leaders = make([]*broker, len(rt.Partitions))
			for _, p := range rt.Partitions {
				if b := c.nodes[p.LeaderID]; b != nil && int(p.PartitionIndex) < len(t.leaders) && p.PartitionIndex >= 0 {
					t.leaders[p.PartitionIndex] = b
				}
			}
			if slices.Contains(t.leaders, nil) {
				t.fresh = now.Add(absentAge)
			}
		} else {
			t.fresh = now.Add(absentAge)
		}
		if before := c.topics[rt.Name]; before != nil {
			t.sizeLimit = before.sizeLimit
		}
		c.topics[rt.Name] = t
	}
}

// learnNodes follows brokers that come, go and move.
func (c *cluster) learnNodes(brokers []metadata.ResponseBroker) {
	if c.closed {
		return
	}
	listed := map[int32]bool{}
	for _, rb := range brokers {
		addr := net.JoinHostPort(rb.Host, strconv.Itoa(int(rb.Port)))
		listed[rb.NodeID] = true
		if b := c.nodes[rb.NodeID]; b == nil || b.addr != addr {
			if b != nil {
				b.close()
			}
			c.nodes[rb.NodeID] = &broker{addr: addr, dial: c.dial}
		}
	}
	for id, b := range c.nodes {
		if !listed[id] {
			b.close()
			delete(c.nodes, id)
		}
	}
}

func (c *cluster) close() {
	c.mu.Lock()
	c.closed = true
	nodes := c.nodes
	c.nodes = map[int32]*broker{}
	c.topics = map[string]*topic{}
	c.mu.Unlock()
	for _, b := range nodes {
		b.close()
	}
	for _, b := range c.boot {
		b.close()
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
