package kafka

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gooutbox/outbox/core"
)

// largestRequest is Kafka's own default of socket.request.max.bytes. A broker
// answers a larger request by closing the connection, which tells nothing.
const largestRequest = 100 << 20

// requestSizeError is an encoded request that no broker would read.
type requestSizeError struct{ size, limit int }

func (e *requestSizeError) Error() string { return e.field().Error() }

func (e *requestSizeError) field() *core.FieldError {
	return &core.FieldError{
		Field: core.WholeEvent, Problem: "makes a request over the brokers' socket.request.max.bytes",
		Size: e.size, Limit: e.limit,
	}
}

// size is that of the event alone in its record set, as Kafka counts it, before
// compression.
func (it *item) size() int { return setOverhead + recordLen(it.body, 0) }

// over tells whether the topic takes nothing of the item's size. With
// compression only the broker can tell.
func (d *delivery) over(t *topic, it *item) bool {
	return t.err == nil && t.exact && d.s.compression == 0 && it.size() > t.bytes
}

// confirmLimits reads the limits of topics again that would reject an event,
// unless they were read since: a rejection is for good, and a limit may have
// been raised. Where they can't be read the broker decides.
func (d *delivery) confirmLimits(ctx context.Context, topics []*topic, since time.Time) {
	var names []string
	var places []int
	for i := range d.items {
		it := &d.items[i]
		t := topics[it.topic]
		if d.over(t, it) && t.checked.Before(since) && !slices.Contains(places, it.topic) {
			names, places = append(names, t.name), append(places, it.topic)
		}
	}
	if len(names) == 0 {
		return
	}
	for i, t := range d.s.cluster.confirm(ctx, names) {
		if t != nil {
			topics[places[i]] = t
		}
	}
}

// oversize is why the event is too large to be sent, nil if it isn't or if only
// the broker can tell.
func (d *delivery) oversize(t *topic, it *item) error {
	size, largest := it.size(), d.s.cluster.dial.largest
	switch limit := d.s.cfg.MaxMessageBytes; {
	case limit > 0 && size > limit:
		return tooLarge(t.name, it, limit)
	case d.over(t, it):
		return tooLarge(t.name, it, t.bytes)
	case d.s.compression == 0 && size > largest:
		return (&requestSizeError{size, largest}).field()
	}
	return nil
}

// tooLarge names the size of the event as Kafka counts it. limit is 0 if it
// isn't known.
func tooLarge(topic string, it *item, limit int) error {
	size, problem := it.size(), fmt.Sprintf("is too large for topic %q", topic)
	if limit == 0 {
		return &core.FieldError{Field: core.WholeEvent, Problem: fmt.Sprintf(
			"%s: %d bytes, more than its max.message.bytes (allow DESCRIBE_CONFIGS on the topic to have the limit named here)", problem, size)}
	}
	return &core.FieldError{Field: core.WholeEvent, Problem: problem, Size: size, Limit: limit}
}
