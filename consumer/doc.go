// Package consumer is the receiving side of Outbox: it turns a broker's message
// back into the event that a sink sent, and runs a Handler for it.
//
// The promise: a message is acknowledged only after its handler returned nil,
// or after it was put, with its reason, where dead letters go. What fails is
// tried again in place, so that the events of one key stay in order; what can't
// succeed doesn't stop the others. With consumer/dedupe around the handler's
// effect, each event's effect happens once.
//
// The folders below have one adapter per broker, so that a program links only
// the client that it uses: consumer/kafka, consumer/amqp and consumer/sqs. This
// package has what they share; a program needs it for the types Delivery,
// Handler and Retry, and another broker's adapter for Decode, Attempt and Lanes.
package consumer
