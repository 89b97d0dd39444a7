// Package amqp delivers events to RabbitMQ by AMQP 0-9-1. Import it as amqpsink
// where a client has the same name.
//
// What it promises: an event is reported as delivered only when the broker
// confirmed it and had not returned it as unroutable: every message is
// published as mandatory and on a channel with publisher confirms, and is
// persistent unless configured otherwise. Of one key at most one message is
// unconfirmed at any time, so its events arrive in order, and after one of them
// failed no later one is sent in the same call; keys go side by side. One event
// that is refused fails alone, also when its exchange doesn't exist. When
// Deliver has returned, nothing more reaches the broker from that call, except
// for events whose outcome was reported as unknown. Nothing is retried here and
// nothing is buffered between calls.
//
// A connection that is lost is replaced by the next call. What was under way on
// it is unknown: it may have arrived, and is sent again by the relay.
//
// Between calls a sink holds one connection, with the goroutines of its client
// for reading and heartbeats. Close ends them.
package amqp
