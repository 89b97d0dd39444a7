// Package amqp runs a handler for the messages of a RabbitMQ queue, by
// rabbitmq/amqp091-go.
//
// The promise: a message is acknowledged only after its handler returned nil, or
// after it was confirmed where dead letters go. A message that fails is tried
// again in place, and waits unacknowledged meanwhile; what was not handled at a
// shutdown is given back to the queue. Events of one key are handled in the
// order in which the queue gives them, as long as this is its only consumer; what
// is given back comes again at its old place, where the broker can.
//
// The connection is made again when it ends. Messages that were not
// acknowledged come again then, also those whose effect took place:
// consumer/dedupe makes it one.
package amqp
