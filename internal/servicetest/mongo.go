package servicetest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// cleanupTime bounds what is done after a test on one server.
const cleanupTime = 20 * time.Second

// MongoURL returns the connection string of the shared replica set.
func MongoURL(t testing.TB) string {
	t.Helper()
	return fromEnvironment(t, mongoVariable)
}

// StandaloneURL returns the connection string of the shared mongod that is no
// replica set.
func StandaloneURL(t testing.TB) string {
	t.Helper()
	return fromEnvironment(t, standaloneVariable)
}

// Mongo returns a client of the shared replica set. It is disconnected when
// the test ends.
func Mongo(t testing.TB) *mongo.Client {
	t.Helper()
	return Client(t, MongoURL(t))
}

// Client returns a client for any connection string, with further options such
// as a command monitor. It is disconnected when the test ends.
func Client(t testing.TB, url string, opts ...*options.ClientOptions) *mongo.Client {
	t.Helper()
	// A server that went away shows as an error after seconds, not half a minute.
	base := options.Client().ApplyURI(url).SetServerSelectionTimeout(10 * time.Second)
	client, err := mongo.Connect(append([]*options.ClientOptions{base}, opts...)...)
	if err != nil {
		t.Fatalf("connecting to MongoDB: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupTime)
		defer cancel()
		_ = client.Disconnect(ctx) // the test has ended: nothing is left to save
	})
	return client
}

// Database returns a database of this test alone on the shared replica set. It
// is dropped when the test ends.
func Database(t testing.TB, opts ...*options.ClientOptions) *mongo.Database {
	t.Helper()
	return DatabaseOf(t, Client(t, MongoURL(t), opts...))
}

// StandaloneDatabase returns a database of this test alone on the shared
// mongod that is no replica set. It is dropped when the test ends.
func StandaloneDatabase(t testing.TB, opts ...*options.ClientOptions) *mongo.Database {
	t.Helper()
	return DatabaseOf(t, Client(t, StandaloneURL(t), opts...))
}

// DatabaseOf returns a database of this test alone on the client's server. It
// is dropped when the test ends.
func DatabaseOf(t testing.TB, client *mongo.Client) *mongo.Database {
	t.Helper()
	db := client.Database(Name(t))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupTime)
		defer cancel()
		if err := db.Drop(ctx); err != nil {
			t.Logf("dropping the test's database %s: %v", db.Name(), err)
		}
	})
	return db
}

// Name returns a name that no other test run uses, at most 60 characters of
// letters, digits and hyphens: for collections, consumer groups, cursors.
func Name(t testing.TB) string {
	t.Helper()
	return uniqueName(t, 60)
}

// uniqueName returns a name of at most limit characters that no other test run
// uses, and that still shows which test it belongs to.
func uniqueName(t testing.TB, limit int) string {
	t.Helper()
	random := make([]byte, 6)
	_, _ = rand.Read(random) // never fails
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '-'
	}, t.Name())
	suffix := "-" + hex.EncodeToString(random)
	return name[:min(len(name), limit-len(suffix))] + suffix
}
