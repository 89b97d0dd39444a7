package mongo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// keyDocumentSeconds is how long the document of a key that is no longer
// appended to stays. Removing one is safe at any time: a transaction that
// touched it conflicts, and is run again.
const keyDocumentSeconds = 24 * 60 * 60

// wantedIndex is one index that the store needs.
type wantedIndex struct {
	coll    *mongo.Collection
	name    string
	keys    bson.D
	partial bson.D
	expire  *int32
	// why says what is slow without it.
	why string
}

func (s *Store) wantedIndexes(poll bool) []wantedIndex {
	f := &s.cfg.Fields
	expire := int32(keyDocumentSeconds)
	indexes := []wantedIndex{
		{
			coll: s.log, name: "outbox_scan", keys: s.scanOrder(),
			why: "a cursor's scan and the cleaner read by it",
		},
		{
			coll: s.jobs, name: "outbox_cursor", keys: bson.D{{Key: "cursor", Value: 1}, {Key: "position.time", Value: 1}},
			partial: bson.D{{Key: "cursor", Value: op("$exists", true)}},
			why:     "a new holder loads the jobs of its cursor by it",
		},
		{
			coll: s.jobs, name: "outbox_reference", keys: bson.D{{Key: "reference", Value: 1}},
			partial: bson.D{{Key: "reference", Value: op("$exists", true)}},
			why:     "the cleaner looks up by it what it must leave",
		},
		{
			coll: s.keys, name: "outbox_expire", keys: bson.D{{Key: "at", Value: 1}}, expire: &expire,
			why: "documents of old keys are removed by it",
		},
	}
	if poll {
		indexes = append(indexes, wantedIndex{
			coll: s.log, name: "outbox_unpublished", keys: append(bson.D{{Key: f.PublishedAt, Value: 1}}, s.scanOrder()...),
			partial: bson.D{{Key: f.PublishedAt, Value: nil}},
			why:     "events that are still to be delivered are found by it",
		})
	}
	return append(indexes, s.jobIndexes()...)
}

// EnsureIndexes creates the store's collections and indexes where they are
// missing, and notes the layout's version. It is safe to repeat, and to run
// while events are written. An index that exists under another name serves as
// well; one that is in the way is an error that names the command to run.
//
// Call it before the first Append: a transaction can't create a collection on
// every version of the server.
func (s *Store) EnsureIndexes(ctx context.Context) error {
	if err := s.ensure(ctx); err != nil {
		return fmt.Errorf("ensuring collections and indexes: %w", err)
	}
	return nil
}

func (s *Store) ensure(ctx context.Context) error {
	if err := s.checkLayout(ctx); err != nil {
		return err
	}
	poll, err := s.polls(ctx)
	if err != nil {
		return err
	}
	for _, coll := range s.collections() {
		if err := s.db.CreateCollection(ctx, coll.Name()); err != nil && !hasCode(err, codeNamespaceExists) {
			return fmt.Errorf("creating collection %s: %w", coll.Name(), err)
		}
	}
	if err := s.CheckLog(ctx); err != nil {
		return err
	}
	if err := ensureIndexes(ctx, s.wantedIndexes(poll)); err != nil {
		return err
	}
	if err := s.adaptRetention(ctx); err != nil {
		return err
	}
	return s.writeLayout(ctx)
}

// ErrUnfitLog: the log's collection is a view, a time-series collection or a
// capped one. Copy its documents into an ordinary collection and give that the
// name, or configure another name.
var ErrUnfitLog = errors.New("the log needs an ordinary collection: copy the documents into one and rename it to this name, " +
	"or choose another name in the configuration")

// CheckLog returns an error that is ErrUnfitLog for a log that can't be read as
// one. A collection that doesn't exist yet is no error.
func (s *Store) CheckLog(ctx context.Context) error {
	specs, err := s.db.ListCollectionSpecifications(ctx, bson.D{{Key: "name", Value: s.log.Name()}})
	if err != nil {
		return fmt.Errorf("listing collection %s: %w", s.log.Name(), err)
	}
	for _, spec := range specs {
		if spec.Type != "collection" {
			return fmt.Errorf("%s is a %s, which has no change stream: %w", s.log.Name(), kindOfCollection(spec.Type), ErrUnfitLog)
		}
		if capped, _ := spec.Options.Lookup("capped").BooleanOK(); capped {
			return fmt.Errorf("%s is a capped collection, which drops events that were not delivered and can't be read in a snapshot: %w",
				s.log.Name(), ErrUnfitLog)
		}
	}
	return nil
}

func kindOfCollection(typ string) string {
	if typ == "timeseries" {
		return "time-series collection"
	}
	return typ
}

// ensureIndexes creates the indexes of each collection in one command, and one
// by one where that is refused.
func ensureIndexes(ctx context.Context, wanted []wantedIndex) error {
	var errs []error
	for len(wanted) > 0 {
		coll := wanted[0].coll
		var models []mongo.IndexModel
		var these, others []wantedIndex
		for _, w := range wanted {
			if w.coll != coll {
				others = append(others, w)
				continue
			}
			models, these = append(models, w.model()), append(these, w)
		}
		wanted = others
		if _, err := coll.Indexes().CreateMany(ctx, models); err == nil {
			continue
		}
		for _, w := range these {
			errs = append(errs, w.ensure(ctx))
		}
	}
	return errors.Join(errs...)
}

func (w wantedIndex) model() mongo.IndexModel {
	opts := options.Index().SetName(w.name)
	if w.partial != nil {
		opts.SetPartialFilterExpression(w.partial)
	}
	if w.expire != nil {
		opts.SetExpireAfterSeconds(*w.expire)
	}
	return mongo.IndexModel{Keys: w.keys, Options: opts}
}

func (w wantedIndex) ensure(ctx context.Context) error {
	_, err := w.coll.Indexes().CreateOne(ctx, w.model())
	if err == nil {
		return nil
	}
	if !hasCode(err, codeIndexOptionsConflict, codeIndexKeySpecsConflict) {
		return fmt.Errorf("creating index %s of %s: %w", w.name, w.coll.Name(), err)
	}
	found, err := listIndexes(ctx, w.coll)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(found, w.servedBy) {
		return nil
	}
	if i := slices.IndexFunc(found, w.expiresOtherwise); i >= 0 {
		return w.adaptExpiry(ctx, found[i])
	}
	return w.conflict(found)
}

// servedBy tells whether an existing index does the work of the wanted one.
func (w wantedIndex) servedBy(spec bson.Raw) bool {
	if !w.sameKeys(spec) || w.expire != nil {
		return false
	}
	for _, option := range []string{"sparse", "hidden", "collation"} {
		if v := spec.Lookup(option); !v.IsZero() && (v.Type != bson.TypeBoolean || v.Boolean()) {
			return false
		}
	}
	partial, restricted := spec.Lookup("partialFilterExpression").DocumentOK()
	return !restricted || (w.partial != nil && bytes.Equal(partial, mustMarshal(w.partial)))
}

// expiresOtherwise tells whether an existing index is the wanted one but for
// the time after which documents are removed.
func (w wantedIndex) expiresOtherwise(spec bson.Raw) bool {
	partial, _ := spec.Lookup("partialFilterExpression").DocumentOK()
	_, expires := wholeOf(spec.Lookup("expireAfterSeconds"))
	var want bson.Raw
	if w.partial != nil {
		want = mustMarshal(w.partial)
	}
	return w.expire != nil && expires && w.sameKeys(spec) && bytes.Equal(partial, want)
}

// adaptExpiry sets the time of an existing index.
func (w wantedIndex) adaptExpiry(ctx context.Context, spec bson.Raw) error {
	name, _ := spec.Lookup("name").StringValueOK()
	err := w.coll.Database().RunCommand(ctx, bson.D{
		{Key: "collMod", Value: w.coll.Name()},
		{Key: "index", Value: bson.D{{Key: "name", Value: name}, {Key: "expireAfterSeconds", Value: *w.expire}}},
	}).Err()
	if err != nil {
		return fmt.Errorf("changing when index %s of %s removes documents (collMod): %w", name, w.coll.Name(), err)
	}
	return nil
}

func (w wantedIndex) sameKeys(spec bson.Raw) bool {
	keys, _ := spec.Lookup("key").DocumentOK()
	have := walk(keys)
	for _, want := range w.keys {
		if !have.next() || string(have.name) != want.Key {
			return false
		}
		if n, ok := wholeOf(have.value); !ok || n != 1 {
			return false
		}
	}
	return !have.next()
}

// conflict is one line: what, why, and the command to run.
func (w wantedIndex) conflict(found []bson.Raw) error {
	blocking, problem := w.name, "has this name and other keys or options"
	for _, spec := range found {
		if name, _ := spec.Lookup("name").StringValueOK(); name != w.name && w.sameKeys(spec) {
			blocking, problem = name, "has the same keys and other options"
		}
	}
	return fmt.Errorf("creating index %s of %s (%s): index %q %s; run db.getCollection(%q).dropIndex(%q), then `outbox indexes`",
		w.name, w.coll.Name(), w.why, blocking, problem, w.coll.Name(), blocking)
}

func listIndexes(ctx context.Context, coll *mongo.Collection) ([]bson.Raw, error) {
	found, err := coll.Indexes().List(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing the indexes of %s: %w", coll.Name(), err)
	}
	var specs []bson.Raw
	if err := found.All(ctx, &specs); err != nil {
		return nil, fmt.Errorf("listing the indexes of %s: %w", coll.Name(), err)
	}
	return specs, nil
}

// missingIndexes names the indexes that EnsureIndexes would create.
func (s *Store) missingIndexes(ctx context.Context, poll bool) ([]string, error) {
	var missing []string
	for _, w := range s.wantedIndexes(poll) {
		found, err := listIndexes(ctx, w.coll)
		if err != nil {
			return nil, err
		}
		exists := func(spec bson.Raw) bool {
			name, _ := spec.Lookup("name").StringValueOK()
			return w.servedBy(spec) || (name == w.name && w.sameKeys(spec))
		}
		if !slices.ContainsFunc(found, exists) {
			missing = append(missing, strings.Join([]string{w.coll.Name(), w.name}, "."))
		}
	}
	return missing, nil
}

// mustMarshal encodes a document of this package's own.
func mustMarshal(doc bson.D) bson.Raw {
	raw, err := bson.Marshal(doc)
	if err != nil {
		panic(err)
	}
	return raw
}
