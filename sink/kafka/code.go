package kafka

import (
	"fmt"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/metadata"

	"github.com/gooutbox/outbox/core"
)

// verdict is what a broker's code says of a record set.
type verdict uint8

const (
	// accepted: the set is in the log.
	accepted verdict = iota
	// faulty: a record of the set is not acceptable, nothing was stored. Alone
	// in its set, the record is rejected.
	faulty
	// refused: this topic takes nothing from us now, others may.
	refused
	// moved: the partition has no leader, another one, or too few replicas;
	// nothing was stored. It concerns whatever is sent there, not an event.
	moved
	// unavailable: the brokers take nothing from us.
	unavailable
	// unknown: the set may have been stored.
	unknown
)

func verdictOf(code kafkago.Error) verdict {
	switch code {
	case 0:
		return accepted
	case kafkago.MessageSizeTooLarge, kafkago.RecordListTooLarge, kafkago.InvalidRecord,
		kafkago.InvalidMessage, kafkago.InvalidMessageSize, kafkago.InvalidTimestamp:
		return faulty
	case kafkago.UnknownTopicOrPartition, kafkago.LeaderNotAvailable, kafkago.NotLeaderForPartition,
		kafkago.BrokerNotAvailable, kafkago.ReplicaNotAvailable, kafkago.NotEnoughReplicas,
		kafkago.KafkaStorageError, kafkago.FencedLeaderEpoch, kafkago.UnknownLeaderEpoch,
		kafkago.UnknownTopicID, kafkago.InconsistentTopicID:
		return moved
	case kafkago.ClusterAuthorizationFailed, kafkago.InvalidRequiredAcks, kafkago.UnsupportedVersion,
		kafkago.UnsupportedCompressionType, kafkago.IllegalSASLState, kafkago.SASLAuthenticationFailed:
		return unavailable
	case kafkago.RequestTimedOut, kafkago.NotEnoughReplicasAfterAppend, kafkago.Unknown, kafkago.NetworkException:
		return unknown
	default:
		return refused
	}
}

// creating tells whether a topic of the answer doesn't exist yet.
func creating(res *metadata.Response) bool {
	for i := range res.Topics {
		switch kafkago.Error(res.Topics[i].ErrorCode) {
		case kafkago.UnknownTopicOrPartition, kafkago.LeaderNotAvailable:
			return true
		}
	}
	return false
}

// topicError is why nothing can be sent to a topic, marked with its outcome, or
// nil. One topic says nothing of the others, so that most are refusals.
func topicError(t *metadata.ResponseTopic, create bool) error {
	switch code := kafkago.Error(t.ErrorCode); code {
	case 0:
		if len(t.Partitions) == 0 {
			return core.MarkUnavailable(fmt.Errorf("topic %q has no partitions yet", t.Name))
		}
		return nil
	case kafkago.UnknownTopicOrPartition:
		if create {
			return fmt.Errorf("topic %q doesn't exist and the brokers don't create it: create it, or set auto.create.topics.enable on the brokers", t.Name)
		}
		return fmt.Errorf("topic %q doesn't exist: create it, or let the sink ask for it (CreateTopics; create_topics: true in YAML)", t.Name)
	case kafkago.TopicAuthorizationFailed:
		return fmt.Errorf("no right to use topic %q: allow WRITE and DESCRIBE on it: %w", t.Name, code)
	case kafkago.InvalidTopic:
		return core.MarkRejected(fmt.Errorf("topic %q can't be written to: %w", t.Name, code))
	case kafkago.LeaderNotAvailable:
		return core.MarkUnavailable(fmt.Errorf("topic %q: %w", t.Name, code))
	default:
		return fmt.Errorf("topic %q: %w", t.Name, code)
	}
}
