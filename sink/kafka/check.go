package kafka

import (
	"context"
	"fmt"
	"math"
)

// writeRight is the bit of Kafka's operation WRITE in a topic's rights.
const writeRight = 1 << 4

func (c *cluster) check(ctx context.Context, names []string) error {
	res, err := c.describe(ctx, names, false)
	if err != nil {
		return err
	}
	if c.create && creating(res) {
		topics, err := c.lookup(ctx, names)
		if err != nil {
			return err
		}
		return topics[0].err
	}
	for i := range res.Topics {
		t := &res.Topics[i]
		if err := topicError(t, false); err != nil {
			return err
		}
		if rights := t.TopicAuthorizedOperations; rights != math.MinInt32 && rights != 0 && rights&writeRight == 0 {
			return fmt.Errorf("no right to write to topic %q: allow WRITE on it", t.Name)
		}
	}
	return nil
}
