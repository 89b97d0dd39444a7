package kafka

import (
	"context"
	"strconv"
	"time"

	"github.com/segmentio/kafka-go/protocol/describeconfigs"
)

const (
	// assumedLimit is Kafka's own default of max.message.bytes.
	assumedLimit = 1<<20 + 12
	// limitAge is how long a topic's limit is believed where it bounds record
	// sets. Before it rejects an event it is read again.
	limitAge = 5 * time.Minute

	resourceTopic = 2
	limitName     = "max.message.bytes"
)

// sizeLimit is how large a record set of a topic may be.
type sizeLimit struct {
	bytes int
	// exact: the limit was read from the broker.
	exact   bool
	checked time.Time
}

// refreshLimits asks for the limits of topics. Where the broker doesn't tell,
// its default is assumed.
func (c *cluster) refreshLimits(ctx context.Context, names []string) {
	now := time.Now()
	req := &describeconfigs.Request{}
	c.mu.Lock()
	for _, name := range names {
		t := c.topics[name]
		if t == nil || t.err != nil || now.Sub(t.checked) < limitAge {
			continue
		}
		again := *t
		again.exact = false // until it has been read
		if again.checked = now; again.bytes == 0 {
			again.bytes = assumedLimit
			if c.limit > 0 {
				again.bytes = c.limit
			}
		}
		c.topics[name] = &again
		req.Resources = append(req.Resources, describeconfigs.RequestResource{
			ResourceType: resourceTopic, ResourceName: name, ConfigNames: []string{limitName},
		})
	}
	c.mu.Unlock()
	if len(req.Resources) == 0 {
		return
	}
	m, err := c.ask(ctx, req)
	if err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range m.(*describeconfigs.Response).Resources {
		t := c.topics[r.ResourceName]
		if t == nil || r.ErrorCode != 0 {
			continue
		}
		for _, e := range r.ConfigEntries {
			if n, err := strconv.Atoi(e.ConfigValue); err == nil && e.ConfigName == limitName {
				again := *t
				again.bytes, again.exact = n, true
				if c.limit > 0 {
					again.bytes = min(n, c.limit)
				}
				c.topics[r.ResourceName] = &again
			}
		}
	}
}

// confirm reads the limits of topics again and returns what is known of these
// then, nil for one that has been forgotten meanwhile.
func (c *cluster) confirm(ctx context.Context, names []string) []*topic {
	for _, name := range names {
		c.change(name, func(t *topic) { t.checked = time.Time{} })
	}
	c.refreshLimits(ctx, names)
	topics, _ := c.known(names)
	return topics
}
