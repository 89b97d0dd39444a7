package servicetest_test

import (
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/gooutbox/outbox/internal/servicetest"
)

func TestADatabaseIsGoneAfterItsTest(t *testing.T) {
	client := servicetest.Mongo(t)
	var name string
	t.Run("writes", func(t *testing.T) {
		db := servicetest.Database(t)
		name = db.Name()
		if _, err := db.Collection("things").InsertOne(t.Context(), bson.D{{Key: "a", Value: 1}}); err != nil {
			t.Fatal(err)
		}
	})
	names, err := client.ListDatabaseNames(t.Context(), bson.D{{Key: "name", Value: name}})
	if err != nil {
		t.Fatal(err)
	}
	if len(names) != 0 {
		t.Fatalf("database %s is still there", name)
	}
}

func TestTheStandaloneIsNoReplicaSet(t *testing.T) {
	db := servicetest.StandaloneDatabase(t)
	var hello bson.M
	if err := db.RunCommand(t.Context(), bson.D{{Key: "hello", Value: 1}}).Decode(&hello); err != nil {
		t.Fatal(err)
	}
	if name, ok := hello["setName"]; ok {
		t.Fatalf("the standalone is a member of replica set %v", name)
	}
}

func TestATopicTakesMessagesAtOnce(t *testing.T) {
	topic := servicetest.Topic(t, 3, "max.message.bytes=2097152")
	for partition := range 3 {
		conn, err := kafka.DialLeader(t.Context(), "tcp", servicetest.Kafka(t)[0], topic, partition)
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.WriteMessages(kafka.Message{Value: []byte("hello")}); err != nil {
			t.Fatalf("partition %d: %v", partition, err)
		}
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
