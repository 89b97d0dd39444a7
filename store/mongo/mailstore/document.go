package mailstore

import (
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/gooutbox/outbox/sink/mail"
)

// document is a mail as it is stored.
type document struct {
	ID            string      `bson:"_id"`
	State         mail.State  `bson:"state"`
	CorrelationID string      `bson:"correlation_id"`
	Tenant        string      `bson:"tenant"`
	Sink          string      `bson:"sink"`
	Template      string      `bson:"template"`
	Recipients    []recipient `bson:"recipients"`
	Hash          string      `bson:"hash"`
	MessageID     string      `bson:"message_id"`
	ProviderID    string      `bson:"provider_id"`
	Token         string      `bson:"token"`
	ReservedUntil time.Time   `bson:"reserved_until"`
	Steps         []step      `bson:"steps"`
	CreatedAt     time.Time   `bson:"created_at"`
	ExpireAt      time.Time   `bson:"expire_at"`
	Left          *int64      `bson:"left"` // milliseconds of the reservation, where asked for
}

type recipient struct {
	Address string              `bson:"address"`
	State   mail.RecipientState `bson:"state"`
	Detail  string              `bson:"detail,omitempty"`
}

type step struct {
	ID          string        `bson:"id"`
	Kind        mail.StepKind `bson:"kind"`
	At          time.Time     `bson:"at"`
	Attempt     int           `bson:"attempt"`
	Hash        string        `bson:"hash"`
	HashChanged bool          `bson:"hash_changed"`
	Detail      string        `bson:"detail"`
	By          string        `bson:"by"`
	// Decision of a person's step; Lost tells that the reservation was when it was
	// written.
	Decision mail.Decision `bson:"decision"`
	Lost     bool          `bson:"lost"`
}

func (d *document) record() mail.Record {
	r := mail.Record{
		JobID: d.ID, State: d.State, CorrelationID: d.CorrelationID, Tenant: d.Tenant, Sink: d.Sink, Template: d.Template,
		Hash: d.Hash, MessageID: d.MessageID, ProviderID: d.ProviderID, Token: d.Token, ReservedUntil: d.ReservedUntil,
		CreatedAt: d.CreatedAt, ExpireAt: d.ExpireAt,
	}
	for _, one := range d.Recipients {
		r.Recipients = append(r.Recipients, mail.Recipient(one))
	}
	for _, s := range d.Steps {
		r.Steps = append(r.Steps, mail.Step{
			ID: s.ID, Kind: s.Kind, JobID: d.ID, At: s.At, Attempt: s.Attempt, Hash: s.Hash, HashChanged: s.HashChanged,
			Detail: s.Detail, By: s.By,
		})
	}
	return r
}

func records(docs []document) []mail.Record {
	var all []mail.Record
	for i := range docs {
		all = append(all, docs[i].record())
	}
	return all
}

// op is one operator.
func op(name string, value any) bson.D { return bson.D{{Key: name, Value: value}} }

// literal keeps a value from being read as an expression.
func literal(value any) bson.D { return op("$literal", value) }

// equal, oneOf, both, either and choose are expressions.
func equal(a, b any) bson.D                   { return op("$eq", bson.A{a, b}) }
func oneOf(a any, values ...any) bson.D       { return op("$in", bson.A{a, bson.A(values)}) }
func both(conditions ...any) bson.D           { return op("$and", bson.A(conditions)) }
func choose(condition, yes, no any) bson.D    { return op("$cond", bson.A{condition, yes, no}) }
func orElse(expression, otherwise any) bson.D { return op("$ifNull", bson.A{expression, otherwise}) }

// fromNow is a time by the server's clock.
func fromNow(d time.Duration) bson.D { return op("$add", bson.A{"$$NOW", d.Milliseconds()}) }

// newStep is a step that is written now. Zero fields are left out.
func newStep(s mail.Step, more ...bson.E) bson.D {
	doc := bson.D{{Key: "id", Value: literal(s.ID)}, {Key: "kind", Value: literal(s.Kind)}, {Key: "at", Value: "$$NOW"}}
	if s.Attempt != 0 {
		doc = append(doc, bson.E{Key: "attempt", Value: literal(s.Attempt)})
	}
	for _, field := range []struct{ name, value string }{{"hash", s.Hash}, {"detail", cut(s.Detail)}, {"by", s.By}} {
		if field.value != "" {
			doc = append(doc, bson.E{Key: field.name, Value: literal(field.value)})
		}
	}
	return append(doc, more...)
}

// withSteps are the document's steps and those of a list that are new.
func withSteps(list any) bson.D {
	return op("$concatArrays", bson.A{"$steps", op("$filter", bson.D{
		{Key: "input", Value: list},
		{Key: "cond", Value: op("$not", bson.A{op("$in", bson.A{"$$this.id", "$steps.id"})})},
	})})
}

// moved are the document's recipients, those in one of the states from in the
// state to.
func moved(to mail.RecipientState, from ...any) bson.D {
	return op("$map", bson.D{
		{Key: "input", Value: "$recipients"},
		{Key: "in", Value: op("$mergeObjects", bson.A{"$$this", bson.D{{Key: "state", Value: choose(
			oneOf("$$this.state", from...), literal(to), "$$this.state")}}})},
	})
}

// cut bounds a detail without splitting a character.
func cut(s string) string {
	if len(s) > mail.MaxDetailBytes {
		s = s[:mail.MaxDetailBytes]
	}
	return strings.ToValidUTF8(s, "")
}
