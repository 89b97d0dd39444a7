package amqp

import (
	"fmt"
	"regexp"
	"strconv"

	"github.com/rabbitmq/amqp091-go"

	"github.com/gooutbox/outbox/core"
)

var (
	namedExchange = regexp.MustCompile(`exchange '(.*)' in vhost '`)
	namedLimit    = regexp.MustCompile(`larger than (?:configured )?max size (\d+)`)
)

// blame returns the reasons, by lease, for those under way that the broker
// certainly refused when it closed the channel. What it learns keeps others from
// doing the same: a limit that was named, an exchange that is closed to us, and
// care for those whose guilt isn't certain.
func (d *delivery) blame(b broker, why *amqp091.Error) map[int]error {
	guilty := map[int]error{}
	if limit := limitIn(why); limit > 0 {
		d.s.bodyLimit.Store(int64(limit))
		for _, m := range d.inFlight {
			if m.size() > limit {
				guilty[m.lease] = core.MarkRejected(bodyTooLarge(m.size(), limit))
			}
		}
		return guilty
	}
	name, named := exchangeIn(why)
	err := fmt.Errorf("RabbitMQ refused the message: %w", why)
	if named {
		err = unusable(name, why)
		b.learn(name, err)
	}
	var suspects []*message
	for _, m := range d.inFlight {
		if !named || m.exchange == name {
			suspects = append(suspects, m)
			b.trust(m.exchange, false)
		}
	}
	if len(suspects) == 1 {
		guilty[suspects[0].lease] = err
	}
	return guilty
}

// limitIn returns the size that the broker named when a message was larger, or 0.
func limitIn(why *amqp091.Error) int {
	if why.Code != amqp091.PreconditionFailed {
		return 0
	}
	found := namedLimit.FindStringSubmatch(why.Reason)
	if found == nil {
		return 0
	}
	limit, _ := strconv.Atoi(found[1]) // 0 if it is no number after all
	return limit
}

// exchangeIn returns the exchange that the broker named.
func exchangeIn(why *amqp091.Error) (string, bool) {
	if why.Code != amqp091.NotFound && why.Code != amqp091.AccessRefused {
		return "", false
	}
	found := namedExchange.FindStringSubmatch(why.Reason)
	if found == nil {
		return "", false
	}
	return found[1], true
}

func unusable(name string, why *amqp091.Error) error {
	if why.Code == amqp091.NotFound {
		return missing(name, why)
	}
	return fmt.Errorf("exchange %q takes nothing from this user: grant it the right to write: %w", name, why)
}
