package mongo

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/gooutbox/outbox/core"
)

// EnsureValidators makes the server refuse documents of the log and of the queue
// that could not be delivered, by a $jsonSchema validator on each collection. It
// is meant for outboxes that programs in other languages write to: theirs is the
// error then, at the insert. What is stored already is left as it is, and an
// update of it is not refused. A validator that another program set is replaced.
//
// Run EnsureIndexes first. It is safe to repeat, and needs the right collMod.
func (s *Store) EnsureValidators(ctx context.Context) error {
	for _, v := range []struct {
		coll   *mongo.Collection
		schema bson.D
	}{
		{s.log, s.eventSchema()},
		{s.jobs, jobSchema()},
	} {
		err := s.db.RunCommand(withoutSession(ctx), bson.D{
			{Key: "collMod", Value: v.coll.Name()},
			{Key: "validator", Value: bson.D{{Key: "$jsonSchema", Value: v.schema}}},
			{Key: "validationLevel", Value: "moderate"},
			{Key: "validationAction", Value: "error"},
		}).Err()
		if err != nil {
			return fmt.Errorf("setting the validator of %s: %w", v.coll.Name(), err)
		}
	}
	return nil
}

// Parts of schemas.

func typed(types ...string) bson.D { return bson.D{{Key: "bsonType", Value: bson.A(anys(types))}} }

func anys(texts []string) []any {
	all := make([]any, len(texts))
	for i, text := range texts {
		all[i] = text
	}
	return all
}

func also(schema bson.D, more ...bson.E) bson.D {
	return append(schema[:len(schema):len(schema)], more...)
}

func required(names ...string) bson.E { return bson.E{Key: "required", Value: bson.A(anys(names))} }

func describedAs(text string) bson.E { return bson.E{Key: "description", Value: text} }

var (
	numberTypes = []string{"int", "long", "double", "decimal"}
	// textTypes are those that textOf reads. A schema doesn't tell a UUID from
	// other binaries.
	textTypes = append([]string{"string", "objectId", "binData"}, numberTypes...)
	wholeOnly = bson.E{Key: "multipleOf", Value: 1}
	notEmpty  = bson.E{Key: "minLength", Value: 1}
	notBelow0 = bson.E{Key: "minimum", Value: 0}
	// rfc3339 is a date as a text.
	rfc3339 = bson.E{Key: "pattern", Value: `^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})$`}
)

// withNull also allows null, which stands for nothing.
func withNull(types []string) []string { return append(types[:len(types):len(types)], "null") }

// eventFields are the schemas of an event's fields but for its id.
func eventFields(f *Fields, strict bool) bson.D {
	text := also(typed(withNull(textTypes)...), wholeOnly)
	whole := also(typed(withNull(numberTypes)...), wholeOnly, notBelow0)
	key, eventType := also(typed(textTypes...), wholeOnly, notEmpty), also(typed(textTypes...), wholeOnly, notEmpty)
	payload := typed("binData", "string", "object", "array")
	if !strict {
		key, payload = text, typed("binData", "string", "object", "array", "null")
	}
	return bson.D{
		{Key: f.Seq, Value: also(typed("timestamp", "null"), describedAs("insert it as an empty timestamp: the server fills it"))},
		{Key: f.Aggregate, Value: text},
		{Key: f.AggregateID, Value: also(key, describedAs("the key: a string, ObjectId, UUID or whole number"))},
		{Key: f.Type, Value: also(eventType, describedAs("what happened, such as order.placed"))},
		{Key: f.Payload, Value: also(payload, describedAs("binary, a string, a document or an array"))},
		{Key: f.ContentType, Value: text},
		{Key: f.Version, Value: also(whole, bson.E{Key: "maximum", Value: int32(1<<31 - 1)})},
		{Key: f.AggregateVersion, Value: whole},
		{Key: f.Headers, Value: bson.D{
			{Key: "bsonType", Value: bson.A{"object", "null"}},
			{Key: "additionalProperties", Value: typed(append([]string{"bool", "date", "null"}, textTypes...)...)},
		}},
		{Key: f.Tenant, Value: text},
		{Key: f.OccurredAt, Value: also(typed("date", "timestamp", "string", "null"), rfc3339)},
		{Key: f.CorrelationID, Value: text},
		{Key: f.Codec, Value: text},
		{Key: f.KeyID, Value: text},
	}
}

func (s *Store) eventSchema() bson.D {
	f := &s.cfg.Fields
	id := also(typed(textTypes...), wholeOnly, notEmpty)
	return bson.D{
		{Key: "bsonType", Value: "object"},
		required(f.ID, f.AggregateID, f.Type, f.Payload),
		{Key: "properties", Value: append(bson.D{
			{Key: f.ID, Value: id},
			{Key: f.PublishedAt, Value: typed("date", "null")},
		}, eventFields(f, true)...)},
	}
}

// enqueuedAlone holds for jobs that no cursor parked: Enqueue refuses the same. A
// limit in bytes is at least one in characters.
var enqueuedAlone = bson.D{{Key: "allOf", Value: bson.A{
	bson.D{{Key: "properties", Value: bson.D{
		{Key: jobFields.Type, Value: bson.D{{Key: "maxLength", Value: core.MaxNameBytes}}},
		{Key: jobFields.Headers, Value: bson.D{{Key: "patternProperties", Value: bson.D{
			{Key: "^[cC][eE][_-]", Value: bson.D{{Key: "not", Value: bson.D{}}}}, // reserved
		}}}},
	}}},
	bson.D{{Key: "anyOf", Value: bson.A{
		priorityIs(nil, 0, 1, 2), priorityIs("high", 0), priorityIs("normal", 1), priorityIs("low", 2),
	}}},
}}}

// priorityIs is a priority and what goes with it. nil is also one that is missing.
func priorityIs(priority any, ranks ...any) bson.D {
	return bson.D{{Key: "properties", Value: bson.D{
		{Key: "priority", Value: bson.D{{Key: "enum", Value: bson.A{priority}}}}, {Key: "rank", Value: bson.D{{Key: "enum", Value: bson.A(ranks)}}},
	}}}
}

// jobSchema is that of jobs and of pauses, which are told by their ids.
func jobSchema() bson.D {
	objectID := func(fields ...string) bson.D { return bson.D{{Key: "bsonType", Value: "object"}, required(fields...)} }
	job := func(id bson.D, needs bson.E, states ...core.JobState) bson.D {
		return bson.D{needs, {Key: "properties", Value: bson.D{
			{Key: "_id", Value: id}, {Key: "state", Value: bson.D{{Key: "enum", Value: states}}},
		}}}
	}
	id := also(typed(textTypes...), wholeOnly, notEmpty)
	pause := bson.D{{Key: "properties", Value: bson.D{{Key: "_id", Value: objectID("pause", "name")}}}}
	parked := job(objectID("log", "cursor", "event"), required("sink", "state", "cursor"),
		core.JobReady, core.JobActive, core.JobCompleted, core.JobFailed, core.JobUnknown)
	open := append(job(id, required("sink", "state", "rank", jobFields.Type, jobFields.Payload), core.JobReady, core.JobActive), enqueuedAlone...)
	// What ended may have lost its payload.
	final := job(id, required("sink", "state"), core.JobCompleted, core.JobFailed, core.JobUnknown)
	date, number := typed("date", "null"), also(typed(withNull(numberTypes)...), notBelow0)
	properties := append(eventFields(&jobFields, false),
		bson.E{Key: jobFields.ID, Value: also(typed(withNull(textTypes)...), wholeOnly)},
		bson.E{Key: "sink", Value: also(typed("string"), notEmpty, describedAs("which sink delivers it"))},
		bson.E{Key: "rank", Value: also(typed("int", "long", "double"), wholeOnly, notBelow0,
			bson.E{Key: "maximum", Value: lastRank}, describedAs("class: 0 high, 1 normal, 2 low"))},
		bson.E{Key: "attempts", Value: number},
		bson.E{Key: "max_attempts", Value: number},
		bson.E{Key: "redeliveries", Value: number},
	)
	for _, name := range []string{"available_at", "not_before", "enqueued_at", "claimed_at", "lease_until", "finished_at", "expire_at"} {
		properties = append(properties, bson.E{Key: name, Value: date})
	}
	for i := range properties {
		if properties[i].Key == jobFields.Tenant { // claims ask for it by its text
			properties[i].Value = typed("string", "null")
		}
	}
	return bson.D{
		{Key: "bsonType", Value: "object"},
		{Key: "properties", Value: properties},
		{Key: "anyOf", Value: bson.A{pause, parked, open, final}},
	}
}
