package mongo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/gooutbox/outbox/core"
)

// Store is an outbox in one MongoDB database. Its methods may be called by
// several goroutines at once. It holds no connection of its own: the client
// that it was made from must stay connected, and is closed by its owner.
type Store struct {
	cfg     Config
	columns map[string]column
	client  *mongo.Client
	db      *mongo.Database
	log     *mongo.Collection
	cursors *mongo.Collection
	jobs    *mongo.Collection
	keys    *mongo.Collection
	meta    *mongo.Collection
	acts    *mongo.Collection
	logger  *slog.Logger
	metrics metrics
	queue   queue

	mu       sync.Mutex
	server   *deployment
	checked  bool // the layout version is one that this version reads
	found    bool // a collection of the store exists
	warnings map[string]bool
	foreign  foreignSeen
}

var _ core.Log = (*Store)(nil)

// New makes a store of a database. It talks to no server: call EnsureIndexes
// once before the first Append, or run `outbox indexes`. Every problem of the
// configuration is reported at once.
func New(db *mongo.Database, cfg Config) (*Store, error) {
	if db == nil {
		return nil, errors.New("making a MongoDB store: the database is nil: pass client.Database(name)")
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	// The connection string may say w=1 or secondaryPreferred; with these a
	// lease or an event could be lost in a failover.
	own := db.Client().Database(db.Name(), options.Database().
		SetReadPreference(readpref.Primary()).
		SetReadConcern(readconcern.Majority()).
		SetWriteConcern(writeconcern.Majority()))
	s := &Store{
		cfg:      cfg,
		columns:  cfg.Fields.columns(),
		client:   db.Client(),
		db:       own,
		log:      own.Collection(cfg.Collection),
		cursors:  own.Collection(cfg.Collection + "_cursors"),
		jobs:     own.Collection(cfg.Collection + "_jobs"),
		keys:     own.Collection(cfg.Collection + "_keys"),
		meta:     own.Collection(cfg.Collection + "_meta"),
		acts:     own.Collection(cfg.Collection + "_acts"),
		logger:   cfg.Logger,
		warnings: map[string]bool{},
	}
	s.cfg.IDNamespace = orDefault(cfg.IDNamespace, s.Source())
	s.queue = newQueue(s.jobs)
	if s.metrics, err = newMetrics(cfg.MeterProvider); err != nil {
		return nil, err
	}
	return s, nil
}

// Source names the log: "/outbox/<database>/<collection>".
func (s *Store) Source() string {
	return "/outbox/" + s.db.Name() + "/" + s.log.Name()
}

// deployment is what the store must know of the server.
type deployment struct {
	// set tells that the server is a replica set or a sharded cluster: it has
	// transactions, change streams and snapshots.
	set bool
}

// deployment asks the server once what it is.
func (s *Store) deployment(ctx context.Context) (deployment, error) {
	s.mu.Lock()
	known := s.server
	s.mu.Unlock()
	if known != nil {
		return *known, nil
	}
	var hello struct {
		SetName string `bson:"setName"`
		Msg     string `bson:"msg"`
	}
	if err := s.db.RunCommand(withoutSession(ctx), bson.D{{Key: "hello", Value: 1}}).Decode(&hello); err != nil {
		return deployment{}, fmt.Errorf("asking the server what it is: %w", err)
	}
	d := deployment{set: hello.SetName != "" || hello.Msg == "isdbgrid"}
	s.mu.Lock()
	s.server = &d
	s.mu.Unlock()
	return d, nil
}

// polls tells whether the log is read by queries and marks.
func (s *Store) polls(ctx context.Context) (bool, error) {
	d, err := s.deployment(ctx)
	return s.cfg.Poll || !d.set, err
}

// warnOnce logs a line the first time it is called with this text.
func (s *Store) warnOnce(ctx context.Context, text string, args ...any) {
	s.mu.Lock()
	said := s.warnings[text]
	s.warnings[text] = true
	s.mu.Unlock()
	if !said {
		s.logger.WarnContext(ctx, text, args...)
	}
}
