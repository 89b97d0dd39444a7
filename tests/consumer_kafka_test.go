package tests

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/gooutbox/outbox/consumer"
	"github.com/gooutbox/outbox/consumer/dedupe"
	mongodedupe "github.com/gooutbox/outbox/consumer/dedupe/mongo"
	kafkaconsumer "github.com/gooutbox/outbox/consumer/kafka"
	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
	kafkasink "github.com/gooutbox/outbox/sink/kafka"
)

// The consumers of this test are this binary again.
const (
	consumerDatabase = "OUTBOX_CONSUMER_DATABASE"
	consumerTopic    = "OUTBOX_CONSUMER_TOPIC"
)

// TestConsumerProcess is what the other processes run, until they are killed or
// stopped.
func TestConsumerProcess(t *testing.T) {
	name := os.Getenv(consumerDatabase)
	if name == "" {
		t.Skip("this is the parent")
	}
	db, topic := servicetest.Mongo(t).Database(name), os.Getenv(consumerTopic)
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: servicetest.Kafka(t), Topic: topic, GroupID: name, StartOffset: kafka.FirstOffset, MaxWait: 100 * time.Millisecond,
		SessionTimeout: 6 * time.Second, HeartbeatInterval: 500 * time.Millisecond, JoinGroupBackoff: 200 * time.Millisecond,
	})
	defer reader.Close() //nolint:errcheck // the process ends
	seen, err := mongodedupe.New(db, mongodedupe.Config{})
	require.NoError(t, err)
	guard, err := dedupe.New(seen, dedupe.Config{Consumer: "counter"})
	require.NoError(t, err)
	// Effects have ids of their own, and say the order in which they took place.
	err = kafkaconsumer.RunBatch(t.Context(), kafkaconsumer.Config{
		Reader: reader, Consumer: "counter", Batch: 20, Logger: slog.New(slog.DiscardHandler),
		Dead: kafkaconsumer.DeadTopic{Brokers: servicetest.Kafka(t), Topic: topic + "-dead"},
	}, guard.BatchHandler(func(ctx context.Context, ds []consumer.Delivery) error {
		docs := make([]any, len(ds))
		for i, d := range ds {
			docs[i] = bson.D{{Key: "event", Value: d.ID}, {Key: "key", Value: d.AggregateID}, {Key: "at", Value: bson.Timestamp{}}}
		}
		_, err := db.Collection("effects").InsertMany(ctx, docs)
		return err
	}))
	require.NoError(t, err)
}

// A group of three loses a member by kill -9, and gets another one, again and
// again: its partitions move while they are worked on. Each event has its effect
// once, and the effects of a key are in order.
func TestAGroupWhoseMembersAreKilledHasEachEffectOnce(t *testing.T) {
	t.Parallel()
	const members, keys = 3, 40
	events, kills := scale(2_000, 20_000), scale(3, 15)
	db, topic := servicetest.Database(t), servicetest.Topic(t, 6)
	seen, err := mongodedupe.New(db, mongodedupe.Config{})
	require.NoError(t, err)
	require.NoError(t, seen.EnsureIndexes(t.Context()))
	require.NoError(t, db.CreateCollection(t.Context(), "effects"))

	running := make([]*exec.Cmd, members)
	start := func(i int) {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestConsumerProcess$", "-test.timeout=20m")
		cmd.Env = append(os.Environ(), consumerDatabase+"="+db.Name(), consumerTopic+"="+topic)
		cmd.Stderr = os.Stderr
		require.NoError(t, cmd.Start())
		running[i] = cmd
	}
	for i := range members {
		start(i)
	}
	t.Cleanup(func() {
		for _, cmd := range running {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	for round := range kills {
		first := round * events / (kills + 1)
		sendNumbered(t, topic, first, (round+1)*events/(kills+1), keys)
		// The victim dies while some of these are still to be handled.
		awaitEffects(t, db, first+1)
		victim := round % members
		require.NoError(t, running[victim].Process.Kill())
		_ = running[victim].Wait()
		start(victim)
	}
	sendNumbered(t, topic, kills*events/(kills+1), events, keys)
	awaitEffects(t, db, events)
	requireInOrderOnce(t, db, events, keys)
}

// sendNumbered sends events from one number to another, to keys in turn.
func sendNumbered(t *testing.T, topic string, from, to, keys int) {
	t.Helper()
	sink, err := kafkasink.New(kafkasink.Config{Brokers: servicetest.Kafka(t), Topic: topic})
	require.NoError(t, err)
	defer func() { require.NoError(t, sink.Close(context.WithoutCancel(t.Context()))) }()
	var leases []core.Lease
	for n := from; n < to; n++ {
		leases = append(leases, core.Lease{Source: "/outbox/test", Route: "kafka", Event: core.Event{
			ID: fmt.Sprintf("e-%06d", n), AggregateID: fmt.Sprint("key-", n%keys), Type: "counted", Payload: []byte("{}"),
		}})
	}
	for _, r := range sink.Deliver(t.Context(), leases) {
		require.Equal(t, core.Delivered, r.Outcome, "%v", r.Err)
	}
}

// awaitEffects waits for so many effects at least.
func awaitEffects(t *testing.T, db *mongo.Database, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		got, err := db.Collection("effects").CountDocuments(t.Context(), bson.D{})
		return err == nil && got >= int64(n)
	}, 5*time.Minute, 50*time.Millisecond, "%d effects", n)
}

// requireInOrderOnce reads the effects in the order in which they were written.
func requireInOrderOnce(t *testing.T, db *mongo.Database, events, keys int) {
	t.Helper()
	cur, err := db.Collection("effects").Aggregate(t.Context(), bson.A{
		bson.D{{Key: "$sort", Value: bson.D{{Key: "at", Value: 1}}}},
		bson.D{{Key: "$group", Value: bson.D{{Key: "_id", Value: "$key"}, {Key: "events", Value: bson.D{{Key: "$push", Value: "$event"}}}}}},
	})
	require.NoError(t, err)
	var got []struct {
		Key    string   `bson:"_id"`
		Events []string `bson:"events"`
	}
	require.NoError(t, cur.All(t.Context(), &got))
	require.Len(t, got, keys)
	for _, key := range got {
		number := 0
		_, err := fmt.Sscanf(key.Key, "key-%d", &number)
		require.NoError(t, err)
		var want []string
		for n := number; n < events; n += keys {
			want = append(want, fmt.Sprintf("e-%06d", n))
		}
		require.Equal(t, strings.Join(want, " "), strings.Join(key.Events, " "), key.Key)
	}
}
