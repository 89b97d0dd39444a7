// Package kafka runs a handler for the messages of a segmentio/kafka-go Reader.
//
// The promise: an offset is committed only after the handler returned nil for the
// message and for all before it of its partition, or after those that were given
// up lie in the dead-letter topic, acknowledged by all replicas. The messages
// of a partition are handled in order, those of different partitions side by
// side. A message that fails is tried again in place: its partition waits, the
// others go on.
//
// Repeats: after a crash or a rebalance the messages that were not committed
// come again, and while a partition moves two consumers may be at the same
// message. consumer/dedupe makes the effect one.
package kafka
