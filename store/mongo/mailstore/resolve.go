package mailstore

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/gooutbox/outbox/sink/mail"
)

// Resolve keeps to mail.Ledger.
func (l *Ledger) Resolve(ctx context.Context, r mail.Resolution) (mail.Record, error) {
	record, err := l.resolve(withoutSession(ctx), r)
	if err != nil {
		return record, fmt.Errorf("resolving a mail: %w", err)
	}
	return record, nil
}

func (l *Ledger) resolve(ctx context.Context, r mail.Resolution) (mail.Record, error) {
	if r.JobID == "" || r.By == "" {
		return mail.Record{}, errors.New("JobID and By are required")
	}
	lapsed := bson.D{{Key: "state", Value: mail.StateReserved}, {Key: "$expr", Value: op("$lte", bson.A{"$reserved_until", "$$NOW"})}}
	allowed := bson.A{lapsed, bson.D{{Key: "state", Value: mail.StateUnknown}}}
	kind := mail.StepResolved
	// What was being sent when the reservation ended is as unknown as the rest.
	unsure := choose(equal("$state", mail.StateReserved), bson.A{mail.RecipientUnknown, mail.RecipientPending}, bson.A{mail.RecipientUnknown})
	settled := func(to mail.RecipientState) bson.D {
		return op("$map", bson.D{{Key: "input", Value: "$recipients"}, {Key: "in", Value: op("$mergeObjects", bson.A{"$$this", bson.D{
			{Key: "state", Value: choose(oneOfList("$$this.state", unsure), to, "$$this.state")},
		}})}})
	}
	some := func(states ...any) bson.D {
		return op("$gt", bson.A{op("$size", op("$setIntersection", bson.A{"$recipients.state", bson.A(states)})), 0})
	}
	var recipients, state any
	switch r.Decision {
	case mail.DecideSent:
		recipients = settled(mail.RecipientAccepted)
		state = choose(some(mail.RecipientPending), mail.StateQueued,
			choose(some(mail.RecipientRejected, mail.RecipientSuppressed), mail.StateRefused, mail.StateSent))
	case mail.DecideResend:
		recipients, state = settled(mail.RecipientPending), mail.StateQueued
	case mail.DecideDiscard:
		recipients, state, kind = "$recipients", mail.StateDiscarded, mail.StepDiscarded
		allowed = append(allowed, bson.D{{Key: "state", Value: op("$in", bson.A{mail.StateQueued, mail.StateRefused})}})
	default:
		return mail.Record{}, fmt.Errorf("the decision %.20q is none of sent, resend, discard", string(r.Decision))
	}
	step := newStep(mail.Step{Kind: kind, Detail: r.Why, By: r.By}, bson.E{Key: "decision", Value: literal(r.Decision)})
	step[0].Value = choose(equal("$token", ""), string(kind), op("$concat", bson.A{string(kind) + ":", "$token"}))
	ends := bson.A{mail.StateSent, mail.StateRefused, mail.StateDiscarded}
	update := bson.A{
		op("$set", bson.D{{Key: "recipients", Value: recipients}, {Key: "steps", Value: withSteps(bson.A{step})}}),
		op("$set", bson.D{
			{Key: "state", Value: state}, {Key: "token", Value: ""}, {Key: "reserved_until", Value: "$$REMOVE"}, {Key: "open", Value: "$$REMOVE"},
		}),
		op("$set", bson.D{{Key: "expire_at", Value: choose(oneOfList("$state", ends), fromNow(l.cfg.Retention), "$$REMOVE")}}),
	}
	var d document
	err := l.mails.FindOneAndUpdate(ctx, bson.D{{Key: "_id", Value: r.JobID}, {Key: "$or", Value: allowed}}, update,
		options.FindOneAndUpdate().SetReturnDocument(options.After)).Decode(&d)
	switch {
	case err == nil:
		return d.record(), nil
	case !errors.Is(err, mongo.ErrNoDocuments):
		return mail.Record{}, err
	}
	docs, err := l.aggregate(ctx, op("$match", bson.D{{Key: "_id", Value: r.JobID}}))
	switch {
	case err != nil:
		return mail.Record{}, err
	case len(docs) == 0:
		return mail.Record{}, mail.ErrNoMail
	}
	// The same decision, made once more before anything else happened.
	if last := docs[0].Steps; len(last) > 0 && last[len(last)-1].Decision == r.Decision {
		return docs[0].record(), nil
	}
	return docs[0].record(), mail.ErrNotResolvable
}

// Feedback keeps to mail.Ledger.
func (l *Ledger) Feedback(ctx context.Context, f mail.Feedback) (bool, error) {
	if f.ID == "" || f.ProviderID == "" {
		return false, errors.New("adding a provider's notification: ID and ProviderID are required")
	}
	step := newStep(mail.Step{ID: mail.StepID(f.Kind, f.ID), Kind: f.Kind, Detail: f.Detail})
	result, err := l.mails.UpdateOne(withoutSession(ctx), bson.D{{Key: "provider_id", Value: f.ProviderID}},
		bson.A{op("$set", bson.D{{Key: "steps", Value: withSteps(bson.A{step})}})})
	if err != nil {
		return false, fmt.Errorf("adding a provider's notification: %w", err)
	}
	return result.MatchedCount > 0, nil
}
