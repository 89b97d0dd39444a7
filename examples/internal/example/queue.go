package example

import (
	"context"

	"github.com/rabbitmq/amqp091-go"
)

// AwaitQueue returns a channel once a queue is there, such as one that a relay
// declares when it connects.
func AwaitQueue(ctx context.Context, conn *amqp091.Connection, queue string) (channel *amqp091.Channel, err error) {
	err = Await(ctx, "the queue", func() (bool, error) {
		if channel, err = conn.Channel(); err != nil {
			return false, err
		}
		_, err := channel.QueueDeclarePassive(queue, true, false, false, false, nil)
		return err == nil, nil // an error closed the channel: it isn't there yet
	})
	return channel, err
}
