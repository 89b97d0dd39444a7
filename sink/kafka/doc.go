// Package kafka delivers events to Apache Kafka. Import it as kafkasink where
// a Kafka client has the same name.
//
// What it promises: an event is reported as delivered only when the broker
// acknowledged it, by default from all in-sync replicas. Events of one key go
// to one partition of a topic, the one that the Java client would choose, in
// order; after one of them failed, no later one of that key is sent in the same
// call. One event that is refused fails alone. When Deliver has returned,
// nothing more reaches Kafka from that call, except for events whose outcome
// was reported as unknown. Nothing is retried here, nothing is buffered between
// calls, and no goroutine outlives a call.
//
// An increase of a topic's partitions moves keys to other partitions, as with
// any Kafka producer: events written before and after it can overtake each
// other. The sink sees the change within a minute.
package kafka
