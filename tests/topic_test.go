package tests

import (
	"errors"
	"testing"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"github.com/gooutbox/outbox/internal/services"
	"github.com/gooutbox/outbox/internal/servicetest"
	"github.com/gooutbox/outbox/internal/trial"
	mongostore "github.com/gooutbox/outbox/store/mongo"
)

// eager makes a route try again soon.
var eager = []string{"backoff: {initial: 100ms, max: 500ms}", "outage_backoff: {initial: 100ms, max: 500ms}"}

// TestATopicThatIsDeletedIsWaitedFor deletes the topic under a running relay,
// and makes it again later.
func TestATopicThatIsDeletedIsWaitedFor(t *testing.T) {
	t.Parallel()
	s := newStage(t, servers{}, mongostore.Config{})
	s.config.RouteOptions = append(s.config.RouteOptions, eager...)
	relay := s.hold()
	s.append("before")
	s.awaitIDs("before")
	require.NoError(t, services.DeleteTopic(t.Context(), s.config.Brokers, s.topic))
	meanwhile := s.appendMany("meanwhile", 100)
	require.NoError(t, relay.Await(t.Context(), "an event did not get through", s.topic))
	require.NoError(t, services.CreateTopic(t.Context(), s.config.Brokers, s.topic, 6, nil))
	s.collector = trial.NewCollector(s.config.Brokers, s.topic) // the new one begins at offset 0
	t.Cleanup(s.collector.Close)
	s.awaitIDs(meanwhile...)
	s.stop(relay)
	s.requireOnly(meanwhile...)
}

// TestARightThatIsTakenAwayIsWaitedFor forbids a running relay to write to its
// topic, or to see it, and allows it again.
func TestARightThatIsTakenAwayIsWaitedFor(t *testing.T) {
	t.Parallel()
	broker := servicetest.StartKafka(t, services.KafkaConfig{SASL: true, Properties: map[string]string{
		"authorizer.class.name":          "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		"super.users":                    "User:ANONYMOUS", // whoever needs no password
		"allow.everyone.if.no.acl.found": "true",
	}})
	s := newStage(t, servers{brokers: broker.PlainBrokers()}, mongostore.Config{})
	s.config.Brokers = broker.Brokers()
	s.config.Sink = []string{"sasl: {mechanism: scram-sha-512, username: " + services.User + ", password: " + services.Password + "}"}
	s.config.RouteOptions = append(s.config.RouteOptions, eager...)
	client := trial.NewKafkaClient(broker.PlainBrokers())
	for _, operation := range []kafka.ACLOperationType{kafka.ACLOperationTypeWrite, kafka.ACLOperationTypeDescribe} {
		relay := s.hold()
		allowed, forbidden := servicetest.Name(t), servicetest.Name(t)
		s.append(allowed)
		s.awaitIDs(allowed)
		answer, err := client.CreateACLs(t.Context(), &kafka.CreateACLsRequest{ACLs: []kafka.ACLEntry{{
			ResourceType: kafka.ResourceTypeTopic, ResourceName: s.topic, ResourcePatternType: kafka.PatternTypeLiteral,
			Principal: "User:" + services.User, Host: "*", Operation: operation, PermissionType: kafka.ACLPermissionTypeDeny,
		}}})
		require.NoError(t, err)
		require.NoError(t, errors.Join(answer.Errors...))
		s.append(forbidden)
		require.NoError(t, relay.Await(t.Context(), "an event did not get through", s.topic, "allow WRITE"))
		gone, err := client.DeleteACLs(t.Context(), &kafka.DeleteACLsRequest{Filters: []kafka.DeleteACLsFilter{{
			ResourceTypeFilter: kafka.ResourceTypeTopic, ResourceNameFilter: s.topic, ResourcePatternTypeFilter: kafka.PatternTypeLiteral,
			Operation: kafka.ACLOperationTypeAny, PermissionType: kafka.ACLPermissionTypeAny,
		}}})
		require.NoError(t, err)
		require.NoError(t, gone.Results[0].Error)
		s.awaitIDs(forbidden)
		s.stop(relay)
	}
}
