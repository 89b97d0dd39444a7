package tests

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/gooutbox/outbox/internal/servicetest"
	"github.com/gooutbox/outbox/internal/trial"
	mongostore "github.com/gooutbox/outbox/store/mongo"
)

// cast is where actors play: a database, and the journal that they share. See
// trial.Actor.
type cast struct {
	t      *testing.T
	config trial.Actor
	db     *mongo.Database
	store  *mongostore.Store

	mu     sync.Mutex
	number int
}

// newCast makes a cast on the shared replica set, or on the one of this address.
func newCast(t *testing.T, uri string) *cast {
	t.Helper()
	_, err := actorBinary() // not while work is waiting
	require.NoError(t, err)
	if uri == "" {
		uri = servicetest.MongoURL(t)
	}
	db := servicetest.DatabaseOf(t, servicetest.Client(t, uri))
	store, err := mongostore.New(db, mongostore.Config{})
	require.NoError(t, err)
	require.NoError(t, store.EnsureIndexes(t.Context()))
	dir := t.TempDir()
	moods := filepath.Join(dir, "moods")
	require.NoError(t, os.Mkdir(moods, 0o700))
	return &cast{t: t, db: db, store: store, config: trial.Actor{
		URI: uri, Database: db.Name(), Journal: filepath.Join(dir, "journal"), Moods: moods,
		BackoffInitial: 100 * time.Millisecond, BackoffMax: time.Second,
	}}
}

// start starts an actor, which is killed at the latest when the test ends. It may
// be called by several goroutines.
func (c *cast) start(env ...string) *trial.Relay {
	c.t.Helper()
	relay, err := c.tryStart(env...)
	require.NoError(c.t, err)
	return relay
}

func (c *cast) tryStart(env ...string) (*trial.Relay, error) {
	bin, err := actorBinary()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.number++
	cfg := c.config
	cfg.Owner = fmt.Sprintf("actor-%03d", c.number)
	path, err := cfg.Write(filepath.Dir(cfg.Journal))
	if err != nil {
		return nil, err
	}
	relay, err := trial.StartRelay(bin, path, env...)
	if err == nil {
		c.t.Cleanup(relay.Kill)
	}
	return relay, err
}

// stop ends an actor by SIGTERM and requires that it ends well.
func (c *cast) stop(relay *trial.Relay) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 40*time.Second)
	defer cancel()
	require.NoError(c.t, relay.Await(ctx, trial.ActorUp)) // else SIGTERM ends it as any program
	require.NoError(c.t, relay.Stop(ctx))
}

// notes are the journal so far.
func (c *cast) notes() []trial.Note {
	c.t.Helper()
	notes, err := trial.ReadJournal(c.config.Journal)
	require.NoError(c.t, err)
	return notes
}

// mood makes all events of a key end so, "" as they did before.
func (c *cast) mood(key, outcome string) {
	c.t.Helper()
	path := filepath.Join(c.config.Moods, "key-"+key)
	if outcome == "" {
		require.NoError(c.t, os.Remove(path))
		return
	}
	// Not half written when an actor reads it.
	require.NoError(c.t, os.WriteFile(path+".new", []byte(outcome), 0o600))
	require.NoError(c.t, os.Rename(path+".new", path))
}

// actorBinary builds the actor with crash points once, for all tests.
var actorBinary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "outbox-tests-")
	if err != nil {
		return "", err
	}
	actorDir = dir
	return trial.BuildActor(context.Background(), dir, "crashpoints")
})

var actorDir string

func removeActor() {
	if actorDir != "" {
		_ = os.RemoveAll(actorDir)
	}
}
