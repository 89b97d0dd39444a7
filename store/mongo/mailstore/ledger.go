package mailstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/gooutbox/outbox/sink/mail"
)

// Config says how a Ledger and a List are kept. The zero value is ready for use.
type Config struct {
	// Prefix begins the names of the collections. Defaults to "outbox".
	Prefix string
	// Retention is how long a mail that came to an end is remembered: it must be
	// longer than the queue keeps failed jobs, see mail.DefaultRetention, which is
	// the default.
	Retention time.Duration
	// Gather is how long a write waits for others to share its command, while
	// there are others at all. Defaults to 2 milliseconds; negative is no wait.
	Gather time.Duration
	// Timeout ends a command that doesn't come back. Defaults to 10 seconds.
	Timeout time.Duration
}

// Defaults of Config.
const (
	DefaultPrefix  = "outbox"
	DefaultGather  = 2 * time.Millisecond
	DefaultTimeout = 10 * time.Second
)

// maxPrefixBytes leaves room for a database's name in a namespace.
const maxPrefixBytes = 180

func (c Config) withDefaults() (Config, error) {
	if c.Prefix == "" {
		c.Prefix = DefaultPrefix
	}
	if c.Retention == 0 {
		c.Retention = mail.DefaultRetention
	}
	if c.Gather == 0 {
		c.Gather = DefaultGather
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	var errs []error
	if len(c.Prefix) > maxPrefixBytes || strings.ContainsAny(c.Prefix, "$\x00") || strings.HasPrefix(c.Prefix, "system.") {
		errs = append(errs, fmt.Errorf("Prefix is no name that MongoDB allows, or has more than %d bytes", maxPrefixBytes)) //nolint:staticcheck // a field's name
	}
	if c.Retention < 0 {
		errs = append(errs, errors.New("Retention is negative")) //nolint:staticcheck // a field's name
	}
	if c.Timeout < 0 {
		errs = append(errs, errors.New("Timeout is negative")) //nolint:staticcheck // a field's name
	}
	if len(errs) > 0 {
		return c, fmt.Errorf("checking the configuration of the mail store: %w", errors.Join(errs...))
	}
	return c, nil
}

// collection returns one with majority reads and writes on the primary.
func collection(db *mongo.Database, name string) *mongo.Collection {
	return db.Collection(name, options.Collection().
		SetReadConcern(readconcern.Majority()).SetReadPreference(readpref.Primary()).SetWriteConcern(writeconcern.Majority()))
}

// withoutSession keeps a caller's transaction out of what must count by itself.
func withoutSession(ctx context.Context) context.Context {
	return mongo.NewSessionContext(ctx, nil)
}

// Ledger is a mail.Ledger. It holds no connection of its own and needs no Close.
type Ledger struct {
	cfg   Config
	mails *mongo.Collection
	// plain has the collection's own concerns, which a transaction overrides.
	plain    *mongo.Collection
	reserves *gatherer[mail.ReserveRequest, mail.Reservation]
	finishes *gatherer[mail.Finish, struct{}]
}

var _ mail.Ledger = (*Ledger)(nil)

// NewLedger makes a ledger. It asks the server nothing; call EnsureIndexes once
// before the first mail.
func NewLedger(db *mongo.Database, cfg Config) (*Ledger, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	name := cfg.Prefix + "_mails"
	l := &Ledger{cfg: cfg, mails: collection(db, name), plain: db.Collection(name)}
	l.reserves = newGatherer(cfg, l.reserveAll)
	l.finishes = newGatherer(cfg, l.finishAll)
	return l, nil
}

// EnsureIndexes makes the indexes that are missing.
func (l *Ledger) EnsureIndexes(ctx context.Context) error {
	some := func(field string) *options.IndexOptionsBuilder {
		return options.Index().SetPartialFilterExpression(bson.D{{Key: field, Value: op("$gt", "")}})
	}
	_, err := l.mails.Indexes().CreateMany(withoutSession(ctx), []mongo.IndexModel{
		{Keys: bson.D{{Key: "correlation_id", Value: 1}, {Key: "created_at", Value: 1}}, Options: some("correlation_id")},
		{Keys: bson.D{{Key: "provider_id", Value: 1}}, Options: some("provider_id")},
		{Keys: bson.D{{Key: "open", Value: 1}}, Options: options.Index().SetSparse(true)},
		{Keys: bson.D{{Key: "expire_at", Value: 1}}, Options: options.Index().SetExpireAfterSeconds(0)},
	})
	if err != nil {
		return fmt.Errorf("making the indexes of the mail ledger: %w", err)
	}
	return nil
}
