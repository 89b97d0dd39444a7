package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/config"
	mongostore "github.com/gooutbox/outbox/store/mongo"
)

// mongoOptions is store.mongodb of a configuration.
type mongoOptions struct {
	URI        config.URI `yaml:"uri,required"`
	Database   string     `yaml:"database,required"`
	Collection string     `yaml:"collection"`
	// Fields renames the fields of an existing collection.
	Fields mongoFields `yaml:"fields"`
	// Polling reads by queries and marks, without a change stream.
	Polling      bool            `yaml:"polling"`
	PollInterval config.Duration `yaml:"poll_interval" min:"10ms"`
	// Margin is how far a scan goes back; 0 asks the server.
	Margin config.Duration `yaml:"margin"`
	// ClockSlack is how far foreign producers' clocks may be off.
	ClockSlack config.Duration `yaml:"clock_slack"`
	TLS        *tlsOptions     `yaml:"tls"`
	// Codec opens payloads that producers sealed.
	Codec *codecOptions `yaml:"codec"`
}

// mongoFields is mongostore.Fields, named as the documents' fields are.
type mongoFields struct {
	ID               string `yaml:"id"`
	Seq              string `yaml:"seq"`
	Aggregate        string `yaml:"aggregate"`
	AggregateID      string `yaml:"aggregate_id"`
	Type             string `yaml:"event_type"`
	Payload          string `yaml:"payload"`
	ContentType      string `yaml:"content_type"`
	Version          string `yaml:"version"`
	AggregateVersion string `yaml:"aggregate_version"`
	Headers          string `yaml:"headers"`
	Tenant           string `yaml:"tenant"`
	OccurredAt       string `yaml:"occurred_at"`
	CorrelationID    string `yaml:"correlation_id"`
	PublishedAt      string `yaml:"published_at"`
	Codec            string `yaml:"codec"`
	KeyID            string `yaml:"key_id"`
}

func newMongoOptions() *mongoOptions {
	return &mongoOptions{
		Collection:   mongostore.DefaultCollection,
		PollInterval: config.Duration(mongostore.DefaultPollInterval),
		ClockSlack:   config.Duration(mongostore.DefaultClockSlack),
	}
}

// srvScheme marks addresses whose servers are looked up by DNS.
const srvScheme = "mongodb+srv://"

// Validate refuses what the driver or the store would refuse.
func (o *mongoOptions) Validate(report config.Report) {
	uri := o.URI.Reveal()
	switch {
	case uri == "":
	case unescaped(uri):
		report("uri", mustBeEscaped)
	case strings.HasPrefix(uri, srvScheme): // parsing it asks DNS, which may be away for now
	case !strings.HasPrefix(uri, "mongodb://"):
		report("uri", "must begin with mongodb:// or mongodb+srv://")
	default:
		if err := options.Client().ApplyURI(uri).Validate(); err != nil {
			report("uri", uriProblem(err))
		}
	}
	if strings.ContainsAny(o.Database, `/\. "$*<>:|?`) || len(o.Database) > 63 {
		report("database", "is no name that MongoDB allows")
	}
	if o.TLS != nil {
		o.TLS.validate("tls", report)
	}
	if o.Codec != nil {
		o.Codec.validate("codec", report)
	}
	if client, err := mongo.Connect(options.Client()); err == nil { // connects to nothing yet
		defer func() { _ = client.Disconnect(context.Background()) }()
		if _, err := mongostore.New(client.Database("outbox"), o.store(parts{})); err != nil {
			report("", err.Error())
		}
	}
}

const mustBeEscaped = "holds a character in user or password that must be percent-encoded: @ is %40, : is %3A, / is %2F, % is %25"

// unescaped tells whether user or password hold a character that ends them
// early: the driver would take what follows for a host.
func unescaped(uri string) bool {
	_, rest, _ := strings.Cut(uri, "://")
	rest, _, _ = strings.Cut(rest, "?")
	at := strings.LastIndexByte(rest, '@')
	return at >= 0 && (strings.ContainsAny(rest[:at], "@/") || strings.Count(rest[:at], ":") > 1)
}

var wrongOption = regexp.MustCompile(`invalid value for "([A-Za-z0-9]+)"`)

// uriProblem says what is wrong with an address without the driver's own words,
// which may hold a part of the password.
func uriProblem(err error) string {
	text := err.Error()
	if m := wrongOption.FindStringSubmatch(text); m != nil {
		return "has a wrong value for " + m[1]
	}
	for _, c := range []struct{ part, problem string }{
		{"unescaped", mustBeEscaped},
		{"unescape", "holds a % in user or password that begins no percent-encoding: % itself is %25"},
		{"escape", "holds a % in user or password that begins no percent-encoding: % itself is %25"},
		{"port", "has a port that is no number from 1 to 65535"},
		{"direct", "asks for directConnection beside something that excludes it, such as several hosts"},
		{"uth", "has authentication settings that don't fit together"},
		{"without a ? ", "needs a / before the ?"},
		{"without a /", "needs a / before the ?"},
	} {
		if strings.Contains(text, c.part) {
			return c.problem
		}
	}
	return "is no address that MongoDB's driver understands: mongodb://user:password@host:27017/?replicaSet=name"
}

func (o *mongoOptions) store(p parts) mongostore.Config {
	return mongostore.Config{
		Collection:    o.Collection,
		Fields:        mongostore.Fields(o.Fields),
		Poll:          o.Polling,
		PollInterval:  time.Duration(o.PollInterval),
		Margin:        time.Duration(o.Margin),
		ClockSlack:    time.Duration(o.ClockSlack),
		Logger:        p.logger,
		MeterProvider: p.meters,

		CompletedRetention: time.Duration(p.queue.CompletedRetention),
		FailedRetention:    time.Duration(p.queue.FailedRetention),
		Retain:             mongostore.Retain(p.queue.Retain),
	}
}

// mongoStore is a store with the client that it holds.
type mongoStore struct {
	*mongostore.Store
	client  *mongo.Client
	options *mongoOptions
	// replicaSet is the name that the address asks for, tls whether the
	// connections are to be encrypted.
	replicaSet string
	tls        bool
}

// selectionTimeout is how long an operation waits for a server where the
// address says nothing else.
const selectionTimeout = 10 * time.Second

func (o *mongoOptions) open(_ context.Context, p parts) (store, error) {
	opts := options.Client().ApplyURI(o.URI.Reveal())
	if err := opts.Validate(); err != nil {
		err = fmt.Errorf("looking up the servers of store.mongodb.uri: %w", err)
		if strings.HasPrefix(o.URI.Reveal(), srvScheme) {
			err = core.MarkUnavailable(err)
		}
		return nil, err
	}
	if opts.AppName == nil {
		opts.SetAppName("outbox")
	}
	if opts.ServerSelectionTimeout == nil {
		opts.SetServerSelectionTimeout(selectionTimeout)
	}
	if o.TLS != nil {
		tlsConfig, err := o.TLS.config()
		if err != nil {
			return nil, fmt.Errorf("setting up store.mongodb.tls: %w", err)
		}
		opts.SetTLSConfig(tlsConfig)
	}
	client, err := mongo.Connect(opts)
	if err != nil {
		return nil, fmt.Errorf("setting up the MongoDB client: %w", err)
	}
	cfg := o.store(p)
	if cfg.Codec, err = o.Codec.codec(); err != nil {
		return nil, err
	}
	s, err := mongostore.New(client.Database(o.Database), cfg)
	if err != nil {
		return nil, err
	}
	found := &mongoStore{Store: s, client: client, options: o, tls: opts.TLSConfig != nil}
	if opts.ReplicaSet != nil {
		found.replicaSet = *opts.ReplicaSet
	}
	return found, nil
}

// ping asks the server whether it answers. The error says what is known of the
// reason.
func (s *mongoStore) ping(ctx context.Context) error {
	err := s.client.Ping(ctx, nil)
	if hint := s.hint(err); hint != "" {
		return fmt.Errorf("%w; %s", err, hint)
	}
	return err
}

// hint says what the driver's words for a wrong address mean, or nothing.
func (s *mongoStore) hint(err error) string {
	if err == nil {
		return ""
	}
	text := err.Error()
	switch {
	case s.replicaSet != "" && strings.Contains(text, "Type: ReplicaSetNoPrimary, Servers: []"):
		return "no member calls its set " + s.replicaSet + ": check replicaSet= in store.mongodb.uri"
	case s.tls && strings.Contains(text, "EOF"):
		return "does this port speak TLS?"
	}
	return ""
}

// leaseUntil reads the document of a cursor.
func (s *mongoStore) leaseUntil(ctx context.Context, cursor string) (time.Time, error) {
	var doc struct {
		LeaseUntil time.Time `bson:"lease_until"`
	}
	err := s.client.Database(s.options.Database).Collection(s.options.Collection+"_cursors").
		FindOne(ctx, bson.D{{Key: "_id", Value: cursor}}).Decode(&doc)
	if err != nil && !errors.Is(err, mongo.ErrNoDocuments) {
		return time.Time{}, fmt.Errorf("reading the lease of cursor %s: %w", cursor, err)
	}
	return doc.LeaseUntil, nil
}

func (s *mongoStore) close(ctx context.Context) error {
	if err := s.client.Disconnect(ctx); err != nil {
		return fmt.Errorf("closing the connections to MongoDB: %w", err)
	}
	return nil
}
