// Package sqs runs a handler for the messages of an Amazon SQS queue, by the AWS
// SDK.
//
// The promise: a message is deleted only after its handler returned nil, or after
// it lies in the queue of dead letters. While it is held, waiting or handled, its
// visibility is extended, so that no other consumer gets it; what was not
// handled at a shutdown is made visible at once. Messages of one key, and those
// of one group of a FIFO queue, are handled in the order in which the queue
// gives them. A message that fails is tried again in place.
//
// Repeats: a standard queue may give a message twice, and one whose consumer
// died comes again when its visibility ends. consumer/dedupe makes the effect
// one.
package sqs
