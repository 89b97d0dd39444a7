package services_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/gooutbox/outbox/internal/services"
	"github.com/gooutbox/outbox/internal/servicetest"
)

func count(t *testing.T, things *mongo.Collection) int64 {
	t.Helper()
	n, err := things.CountDocuments(t.Context(), bson.D{})
	if err != nil {
		t.Fatalf("counting: %v", err)
	}
	return n
}

func insert(t *testing.T, things *mongo.Collection) {
	t.Helper()
	if _, err := things.InsertOne(t.Context(), bson.D{}); err != nil {
		t.Fatalf("inserting: %v", err)
	}
}

func TestAReplicaSetOfOneRunsTransactions(t *testing.T) {
	t.Parallel()
	set := servicetest.StartMongod(t, services.MongodConfig{
		OplogSizeMB: 16,
		Parameters:  map[string]string{"minSnapshotHistoryWindowInSeconds": "7"},
	})
	client := servicetest.Client(t, set.URL())
	things := client.Database("test").Collection("things")
	session, err := client.StartSession()
	if err != nil {
		t.Fatal(err)
	}
	defer session.EndSession(t.Context())
	_, err = session.WithTransaction(t.Context(), func(ctx context.Context) (any, error) {
		return things.InsertOne(ctx, bson.D{})
	})
	if err != nil {
		t.Fatal(err)
	}
	var stats struct {
		MaxSize int64 `bson:"maxSize"`
	}
	if err := client.Database("local").RunCommand(t.Context(), bson.D{{Key: "collStats", Value: "oplog.rs"}}).Decode(&stats); err != nil {
		t.Fatal(err)
	}
	if stats.MaxSize != 16<<20 {
		t.Errorf("the oplog holds %d bytes, want 16 MiB", stats.MaxSize)
	}
	var parameter bson.M
	err = client.Database("admin").RunCommand(t.Context(), bson.D{{Key: "getParameter", Value: 1}, {Key: "minSnapshotHistoryWindowInSeconds", Value: 1}}).Decode(&parameter)
	if err != nil {
		t.Fatal(err)
	}
	if parameter["minSnapshotHistoryWindowInSeconds"] != int32(7) {
		t.Errorf("the server's parameters: %v, want a window of 7", parameter)
	}
}

func TestDataOutlivesKillAndRestart(t *testing.T) {
	t.Parallel()
	set := servicetest.StartMongod(t, services.MongodConfig{})
	things := servicetest.Client(t, set.URL()).Database("test").Collection("things")
	insert(t, things)
	set.Kill()
	if err := set.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	insert(t, things)
	if err := set.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := count(t, things); got != 2 {
		t.Fatalf("%d documents, want 2", got)
	}
	if err := set.Start(t.Context()); err != nil {
		t.Fatalf("starting a deployment that runs changes nothing, but: %v", err)
	}
}

func TestASetOfOneStepsDownAndLeadsAgain(t *testing.T) {
	t.Parallel()
	set := servicetest.StartMongod(t, services.MongodConfig{Auth: true})
	things := servicetest.Client(t, set.URL()).Database("test").Collection("things")
	insert(t, things)
	if err := set.StepDown(t.Context()); err != nil {
		t.Fatal(err)
	}
	insert(t, things)
}

func TestThreeNodesElectAnotherPrimary(t *testing.T) {
	t.Parallel()
	set := servicetest.StartMongod(t, services.MongodConfig{Nodes: 3})
	things := servicetest.Client(t, set.URL()).Database("test").Collection("things")
	insert(t, things)
	before, err := set.Primary(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := set.StepDown(t.Context()); err != nil {
		t.Fatal(err)
	}
	after, err := set.Primary(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if after == before {
		t.Fatal("the node that stepped down leads again")
	}
	insert(t, things)
	after.Kill()
	if _, err := set.AwaitPrimary(t.Context()); err != nil {
		t.Fatal(err)
	}
	insert(t, things)
	if err := set.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := count(t, things); got != 3 {
		t.Fatalf("%d documents, want 3", got)
	}
}

func TestAStandaloneHasNoTransactions(t *testing.T) {
	t.Parallel()
	server := servicetest.StartMongod(t, services.MongodConfig{Standalone: true})
	_, err := servicetest.Client(t, server.URL()).Database("test").Watch(t.Context(), mongo.Pipeline{})
	const onlyOnReplicaSets = 40573
	var failure mongo.ServerError
	if !errors.As(err, &failure) || !failure.HasErrorCode(onlyOnReplicaSets) {
		t.Fatalf("watching a standalone: %v, want error %d", err, onlyOnReplicaSets)
	}
}

func TestAuthRefusesClientsWithoutUser(t *testing.T) {
	t.Parallel()
	server := servicetest.StartMongod(t, services.MongodConfig{Standalone: true, Auth: true})
	insert(t, servicetest.Client(t, server.URL()).Database("test").Collection("things"))
	stranger := servicetest.Client(t, "mongodb://"+server.Nodes()[0].Address()+"/?directConnection=true")
	if _, err := stranger.Database("test").Collection("things").InsertOne(t.Context(), bson.D{}); err == nil {
		t.Fatal("a client without user wrote")
	}
}

func TestAPausedServerKeepsItsConnectionsAndDoesNotAnswer(t *testing.T) {
	t.Parallel()
	server := servicetest.StartMongod(t, services.MongodConfig{Standalone: true})
	things := servicetest.Client(t, server.URL()).Database("test").Collection("things")
	insert(t, things)
	node := server.Nodes()[0]
	if err := node.Pause(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := things.InsertOne(ctx, bson.D{}); err == nil {
		t.Fatal("a paused server answered")
	}
	if err := node.Resume(); err != nil {
		t.Fatal(err)
	}
	insert(t, things)
}

func TestCloseLeavesNothing(t *testing.T) {
	t.Parallel()
	server := servicetest.StartMongod(t, services.MongodConfig{Standalone: true})
	dir := filepath.Dir(server.Nodes()[0].Log())
	for range 2 {
		if err := server.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("the data is still there: %v", err)
	}
	if err := server.Nodes()[0].Pause(); err == nil {
		t.Fatal("the server still runs")
	}
}

func TestAServerThatCannotStartTellsItsLastWords(t *testing.T) {
	t.Parallel()
	servicetest.NeedMongod(t)
	_, err := services.StartMongod(t.Context(), services.MongodConfig{Standalone: true, Args: []string{"--noSuchOption"}})
	if err == nil || !strings.Contains(err.Error(), "unrecognised option") {
		t.Fatalf("the error is %v, want mongod's own words about the option", err)
	}
}
