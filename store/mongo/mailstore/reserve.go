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

// Reserve keeps to mail.Ledger. Calls at the same time share two commands.
func (l *Ledger) Reserve(ctx context.Context, req mail.ReserveRequest) (mail.Reservation, error) {
	if req.JobID == "" || req.Token == "" || req.For <= 0 {
		return mail.Reservation{}, errors.New("reserving a mail: JobID, Token and For are required")
	}
	found, err := l.reserves.do(ctx, req)
	if err != nil {
		return mail.Reservation{}, fmt.Errorf("reserving a mail: %w", err)
	}
	return found, nil
}

// reserveAll writes each of the requests, and then reads what they led to: the
// write decides, and the record tells by its token for whom.
func (l *Ledger) reserveAll(ctx context.Context, reqs []mail.ReserveRequest) []answer[mail.Reservation] {
	failed, _, err := l.update(ctx, len(reqs), func(i int) mongo.WriteModel {
		return mongo.NewUpdateOneModel().SetFilter(bson.D{{Key: "_id", Value: reqs[i].JobID}}).
			SetUpdate(reserving(reqs[i])).SetUpsert(true)
	})
	if err != nil {
		return allAlike[mail.Reservation](len(reqs), err)
	}
	ids := make(bson.A, len(reqs))
	for i, req := range reqs {
		ids[i] = req.JobID
	}
	// The steps are left out, they may be many.
	docs, err := l.aggregate(ctx, op("$match", bson.D{{Key: "_id", Value: op("$in", ids)}}), op("$unset", "steps"),
		op("$set", bson.D{{Key: "left", Value: op("$subtract", bson.A{"$reserved_until", "$$NOW"})}}))
	if err != nil {
		return allAlike[mail.Reservation](len(reqs), err)
	}
	byID := make(map[string]*document, len(docs))
	for i := range docs {
		byID[docs[i].ID] = &docs[i]
	}
	answers := make([]answer[mail.Reservation], len(reqs))
	for i, req := range reqs {
		switch d := byID[req.JobID]; {
		case failed[i] != nil:
			answers[i].err = failed[i]
		case d == nil:
			answers[i].err = errors.New("the record is gone")
		default:
			answers[i].value = mail.Reservation{Verdict: verdict(d, req.Token), Record: d.record(), RetryIn: d.left()}
		}
	}
	return answers
}

// left is how long a reservation still holds.
func (d *document) left() time.Duration {
	if d.State != mail.StateReserved || d.Left == nil {
		return 0
	}
	return time.Duration(max(0, *d.Left)) * time.Millisecond
}

func verdict(d *document, token string) mail.Verdict {
	switch {
	case d.State == mail.StateReserved && d.Token == token:
		return mail.VerdictReserved
	case d.State == mail.StateSent, d.State == mail.StateDiscarded:
		return mail.VerdictDone
	case d.State == mail.StateUnknown:
		return mail.VerdictUnknown
	}
	// Another has it, or had it when this one asked and finished meanwhile.
	return mail.VerdictInFlight
}

// What reserving does with a record, by what it is.
const (
	takes   = "take"   // nobody has it
	retakes = "retake" // who had it died; it is sent again by a policy
	again   = "again"  // it is unknown and sent again by a policy
	lapses  = "lapse"  // who had it died
	keeps   = "keep"   // left as it is
)

// reserving is the update of one request, as mail.Ledger's Reserve tells it.
func reserving(req mail.ReserveRequest) bson.A {
	afterDeath, afterUnknown := lapses, keeps
	if req.TakeUnknown {
		afterDeath, afterUnknown = retakes, again
	}
	branch := func(condition any, how string) bson.D {
		return bson.D{{Key: "case", Value: condition}, {Key: "then", Value: how}}
	}
	how := op("$switch", bson.D{{Key: "branches", Value: bson.A{
		branch(oneOf("$state", mail.StateQueued, mail.StateRefused), takes),
		branch(equal("$state", mail.StateUnknown), afterUnknown),
		branch(op("$ne", bson.A{"$state", mail.StateReserved}), keeps),
		branch(equal("$token", literal(req.Token)), keeps),
		branch(op("$gt", bson.A{"$reserved_until", "$$NOW"}), keeps),
	}}, {Key: "default", Value: afterDeath}})

	died := newStep(mail.Step{Kind: mail.StepUnknown, Attempt: req.Attempt})
	died[0].Value = op("$concat", bson.A{string(mail.StepUnknown) + ":", "$token"})
	redelivered := newStep(mail.Step{ID: mail.StepID(mail.StepRedelivered, req.Token), Kind: mail.StepRedelivered, Attempt: req.Attempt})
	attempt := newStep(mail.Step{ID: mail.StepID(mail.StepAttempt, req.Token), Kind: mail.StepAttempt, Attempt: req.Attempt, Hash: req.Hash},
		bson.E{Key: "hash_changed", Value: both(op("$ne", bson.A{"$hash", ""}), op("$ne", bson.A{"$hash", literal(req.Hash)}), literal(req.Hash != ""))})
	first := bson.A{}
	if req.Redelivered {
		first = append(first, redelivered)
	}
	cases := func(byHow ...any) bson.D {
		var branches bson.A
		for i := 0; i+1 < len(byHow); i += 2 {
			branches = append(branches, branch(equal("$_how", byHow[i]), "")) // the value follows
			branches[len(branches)-1].(bson.D)[1].Value = byHow[i+1]
		}
		return op("$switch", bson.D{{Key: "branches", Value: branches}, {Key: "default", Value: byHow[len(byHow)-1]}})
	}
	taking := oneOf("$_how", takes, retakes, again)
	set := bson.D{
		{Key: "steps", Value: cases(
			takes, withSteps(append(first, attempt)),
			again, withSteps(bson.A{redelivered, attempt}),
			retakes, withSteps(bson.A{died, redelivered, attempt}),
			lapses, withSteps(bson.A{died}),
			"$steps")},
		{Key: "recipients", Value: cases(
			takes, choose(equal("$state", mail.StateRefused), moved(mail.RecipientPending, mail.RecipientRejected, mail.RecipientSuppressed), "$recipients"),
			again, moved(mail.RecipientPending, mail.RecipientUnknown),
			retakes, moved(mail.RecipientPending, mail.RecipientUnknown),
			lapses, moved(mail.RecipientUnknown, mail.RecipientPending),
			"$recipients")},
		{Key: "state", Value: cases(lapses, mail.StateUnknown, keeps, "$state", mail.StateReserved)},
		{Key: "token", Value: choose(taking, literal(req.Token), "$token")},
		{Key: "reserved_until", Value: choose(taking, fromNow(req.For), "$reserved_until")},
		{Key: "expire_at", Value: choose(taking, "$$REMOVE", "$expire_at")},
		{Key: "open", Value: choose(taking, "$created_at", "$open")},
	}
	for _, field := range []struct{ name, value string }{
		{"hash", req.Hash},
		{"message_id", req.MessageID},
		{"correlation_id", req.CorrelationID},
		{"tenant", req.Tenant},
		{"sink", req.Sink},
		{"template", req.Template},
	} {
		if field.value != "" {
			set = append(set, bson.E{Key: field.name, Value: choose(taking, literal(field.value), "$"+field.name)})
		}
	}
	var wanted bson.A
	for _, address := range req.Recipients {
		wanted = append(wanted, recipient{Address: address, State: mail.RecipientPending})
	}
	missing := op("$concatArrays", bson.A{"$recipients", op("$filter", bson.D{
		{Key: "input", Value: literal(append(bson.A{}, wanted...))},
		{Key: "cond", Value: op("$not", bson.A{op("$in", bson.A{"$$this.address", "$recipients.address"})})},
	})})
	return bson.A{
		op("$set", begun()),
		op("$set", bson.D{{Key: "_how", Value: how}}),
		op("$set", set),
		op("$set", bson.D{{Key: "recipients", Value: choose(taking, missing, "$recipients")}}),
		op("$unset", "_how"),
	}
}

// begun fills in the fields of a record that wasn't there.
func begun() bson.D {
	return bson.D{
		{Key: "state", Value: orElse("$state", mail.StateQueued)},
		{Key: "created_at", Value: orElse("$created_at", "$$NOW")},
		{Key: "steps", Value: orElse("$steps", bson.A{})},
		{Key: "recipients", Value: orElse("$recipients", bson.A{})},
		{Key: "hash", Value: orElse("$hash", "")},
		{Key: "token", Value: orElse("$token", "")},
	}
}

// update runs n updates in one command. It returns what failed of them and how
// many found their record, and an
// error where it isn't known of any, or the majority doesn't have them. Where
// two made the same record at once the one that was refused tries again.
func (l *Ledger) update(ctx context.Context, n int, model func(int) mongo.WriteModel) (failed map[int]error, matched int, err error) {
	todo := make([]int, n)
	for i := range todo {
		todo[i] = i
	}
	failed = map[int]error{}
	for round := 0; len(todo) > 0; round++ {
		models := make([]mongo.WriteModel, len(todo))
		for i, at := range todo {
			models[i] = model(at)
		}
		result, err := l.mails.BulkWrite(withoutSession(ctx), models, options.BulkWrite().SetOrdered(false))
		bulk, ok := errors.AsType[mongo.BulkWriteException](err)
		if err != nil && (!ok || bulk.WriteConcernError != nil) {
			return nil, 0, err
		}
		if result != nil {
			matched += int(result.MatchedCount)
		}
		var once []int
		for _, w := range bulk.WriteErrors {
			at := todo[w.Index]
			if w.Code == duplicateKey && round < 3 {
				once = append(once, at)
				continue
			}
			failed[at] = w
		}
		todo = once
	}
	return failed, matched, nil
}

// duplicateKey is the code of the server.
const duplicateKey = 11000

func (l *Ledger) aggregate(ctx context.Context, stages ...bson.D) ([]document, error) {
	cur, err := l.mails.Aggregate(withoutSession(ctx), mongo.Pipeline(stages))
	if err != nil {
		return nil, err
	}
	var docs []document
	err = cur.All(ctx, &docs)
	return docs, err
}
