package dedupe

import (
	"github.com/gooutbox/outbox/consumer"
	"github.com/gooutbox/outbox/core"
)

// rejected is the error for an event that states no version.
func rejected(d consumer.Delivery) error {
	return core.MarkRejected(&core.FieldError{
		Field: "AggregateVersion", Problem: "of an event of type " + d.Type + " is not stated: its producer must count the aggregate's changes",
	})
}
