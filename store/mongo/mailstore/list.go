package mailstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/gooutbox/outbox/sink/mail"
)

// List is a mail.SuppressionList. It holds no connection of its own.
type List struct {
	entries *mongo.Collection
	asks    *gatherer[[]string, map[string]mail.Suppression]
}

var _ mail.SuppressionList = (*List)(nil)

// entry is an address as it is stored, under its key.
type entry struct {
	Key    string                 `bson:"_id"`
	Reason mail.SuppressionReason `bson:"reason"`
	Detail string                 `bson:"detail"`
	Since  time.Time              `bson:"since"`
	Until  time.Time              `bson:"until"`
}

// NewList makes a list. Of cfg Prefix, Gather and Timeout count.
func NewList(db *mongo.Database, cfg Config) (*List, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	l := &List{entries: collection(db, cfg.Prefix+"_suppressed")}
	l.asks = newGatherer(cfg, l.askAll)
	return l, nil
}

// EnsureIndexes makes the index by which ended entries are removed.
func (l *List) EnsureIndexes(ctx context.Context) error {
	_, err := l.entries.Indexes().CreateOne(withoutSession(ctx), mongo.IndexModel{
		Keys: bson.D{{Key: "until", Value: 1}}, Options: options.Index().SetExpireAfterSeconds(0),
	})
	if err != nil {
		return fmt.Errorf("making the index of suppressed addresses: %w", err)
	}
	return nil
}

// runs is whether an entry has not ended, and running matches such.
var (
	runs    = op("$or", bson.A{equal(op("$type", "$until"), "missing"), op("$gt", bson.A{"$until", "$$NOW"})})
	running = bson.E{Key: "$expr", Value: runs}
)

// Suppressed keeps to mail.Suppressions. Calls at the same time share a query.
func (l *List) Suppressed(ctx context.Context, addresses []string) (map[string]mail.Suppression, error) {
	if len(addresses) == 0 {
		return map[string]mail.Suppression{}, nil
	}
	found, err := l.asks.do(ctx, addresses)
	if err != nil {
		return nil, fmt.Errorf("asking which addresses are suppressed: %w", err)
	}
	return found, nil
}

func (l *List) askAll(ctx context.Context, asked [][]string) []answer[map[string]mail.Suppression] {
	keys := bson.A{}
	for _, addresses := range asked {
		for _, address := range addresses {
			keys = append(keys, mail.SuppressionKey(address))
		}
	}
	cur, err := l.entries.Find(withoutSession(ctx), bson.D{{Key: "_id", Value: op("$in", keys)}, running})
	if err != nil {
		return allAlike[map[string]mail.Suppression](len(asked), err)
	}
	var found []entry
	if err := cur.All(ctx, &found); err != nil {
		return allAlike[map[string]mail.Suppression](len(asked), err)
	}
	byKey := make(map[string]entry, len(found))
	for _, e := range found {
		byKey[e.Key] = e
	}
	answers := make([]answer[map[string]mail.Suppression], len(asked))
	for i, addresses := range asked {
		answers[i].value = map[string]mail.Suppression{}
		for _, address := range addresses {
			if e, ok := byKey[mail.SuppressionKey(address)]; ok {
				answers[i].value[address] = mail.Suppression{Address: e.Key, Reason: e.Reason, Detail: e.Detail, Since: e.Since, Until: e.Until}
			}
		}
	}
	return answers
}

// Add keeps to mail.SuppressionList, in one command.
func (l *List) Add(ctx context.Context, entries ...mail.Suppression) error {
	if len(entries) == 0 {
		return nil
	}
	models := make([]mongo.WriteModel, len(entries))
	for i, e := range entries {
		key := mail.SuppressionKey(e.Address)
		if key == "" || e.Reason == "" {
			return errors.New("suppressing an address: Address and Reason are required")
		}
		// An entry that is running keeps its beginning and the later end; none is
		// the latest.
		later := any("$$REMOVE")
		if !e.Until.IsZero() {
			later = choose("$_runs", choose(equal(op("$type", "$until"), "missing"), "$$REMOVE",
				op("$max", bson.A{"$until", e.Until})), e.Until)
		}
		models[i] = mongo.NewUpdateOneModel().SetFilter(bson.D{{Key: "_id", Value: key}}).SetUpsert(true).SetUpdate(bson.A{
			op("$set", bson.D{{Key: "_runs", Value: both(op("$ne", bson.A{op("$type", "$since"), "missing"}), runs)}}),
			op("$set", bson.D{
				{Key: "reason", Value: literal(e.Reason)},
				{Key: "detail", Value: literal(cut(e.Detail))},
				{Key: "since", Value: choose("$_runs", "$since", "$$NOW")},
				{Key: "until", Value: later},
			}),
			op("$unset", "_runs"),
		})
	}
	if _, err := l.entries.BulkWrite(withoutSession(ctx), models, options.BulkWrite().SetOrdered(true)); err != nil {
		return fmt.Errorf("suppressing addresses: %w", err)
	}
	return nil
}

// Remove keeps to mail.SuppressionList.
func (l *List) Remove(ctx context.Context, address string) (bool, error) {
	result, err := l.entries.DeleteOne(withoutSession(ctx), bson.D{{Key: "_id", Value: mail.SuppressionKey(address)}, running})
	if err != nil {
		return false, fmt.Errorf("taking an address off the list: %w", err)
	}
	return result.DeletedCount > 0, nil
}
