package mongo

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/gooutbox/outbox/core"
)

// Config says where the store lies. The zero value is useful.
type Config struct {
	// Collection holds the events that were seen; "_versions" and "_fences" are
	// added for the names of the two others. Defaults to "outbox_seen".
	Collection string
	// Grace is how long after the end of a lease a reservation is taken for
	// abandoned: the clocks of a replica set's members may differ at a
	// fail-over. Defaults to 5 seconds.
	Grace time.Duration
}

// DefaultCollection is where events that were seen are kept.
const DefaultCollection = "outbox_seen"

// Store is a dedupe.Store in MongoDB. Its methods may be called by several
// goroutines at once. Whatever the client's URI says, it reads from the primary
// and writes with the majority.
type Store struct {
	client                 *mongo.Client
	db                     *mongo.Database
	seen, versions, fences *mongo.Collection
	grace                  time.Duration
	clock                  clock
}

// New makes a store in a database. It doesn't ask the server anything; call
// EnsureIndexes before the first event.
func New(db *mongo.Database, cfg Config) (*Store, error) {
	if cfg.Collection == "" {
		cfg.Collection = DefaultCollection
	}
	if cfg.Grace == 0 {
		cfg.Grace = core.TakeBackGrace
	}
	if db == nil || cfg.Grace < 0 {
		return nil, errors.New("configuring the store: it needs a database, and a Grace that is not negative")
	}
	opts := options.Collection().SetReadPreference(readpref.Primary()).
		SetReadConcern(readconcern.Majority()).SetWriteConcern(writeconcern.Majority())
	return &Store{
		client: db.Client(), db: db, grace: cfg.Grace,
		seen:     db.Collection(cfg.Collection, opts),
		versions: db.Collection(cfg.Collection+"_versions", opts),
		fences:   db.Collection(cfg.Collection+"_fences", opts),
	}, nil
}

// EnsureIndexes creates the store's collections and indexes where they are
// missing. It is safe to repeat, and to run beside running consumers.
func (s *Store) EnsureIndexes(ctx context.Context) error {
	for _, coll := range []*mongo.Collection{s.seen, s.versions, s.fences} {
		models := []mongo.IndexModel{{
			Keys: bson.D{{Key: "expire_at", Value: 1}}, Options: options.Index().SetName("outbox_expire").SetExpireAfterSeconds(0),
		}}
		if coll == s.seen {
			models = append(models, mongo.IndexModel{
				Keys: bson.D{{Key: "state", Value: 1}, {Key: "_id", Value: 1}},
				Options: options.Index().SetName("outbox_unknown").
					SetPartialFilterExpression(bson.D{{Key: "state", Value: stateUnknown}}),
			})
		}
		if _, err := coll.Indexes().CreateMany(ctx, models); err != nil {
			return fmt.Errorf("ensuring the indexes of %s: %w", coll.Name(), away(err))
		}
	}
	return nil
}

// clock tells the server's time without asking it each time.
type clock struct {
	mu sync.Mutex
	// server is its time at read, which is on this process's monotonic clock.
	server, read time.Time
}

// clockAge is how long a reading of the server's time is good: clocks drift by
// less than a second in it.
const clockAge = time.Hour

// now is the server's time, right to the length of a call.
func (s *Store) now(ctx context.Context) (time.Time, error) {
	c := &s.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	if since := time.Since(c.read); !c.read.IsZero() && since < clockAge {
		return c.server.Add(since), nil
	}
	var hello struct {
		LocalTime time.Time `bson:"localTime"`
	}
	err := s.db.RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}, options.RunCmd().SetReadPreference(readpref.Primary())).Decode(&hello)
	if err != nil {
		return time.Time{}, fmt.Errorf("asking the server for its time: %w", away(err))
	}
	c.server, c.read = hello.LocalTime, time.Now()
	return c.server, nil
}
