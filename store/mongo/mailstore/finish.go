package mailstore

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/gooutbox/outbox/sink/mail"
)

// Finish keeps to mail.Ledger. Calls at the same time share a command.
func (l *Ledger) Finish(ctx context.Context, f mail.Finish) error {
	if f.JobID == "" || f.Token == "" || f.Step.ID == "" {
		return errors.New("finishing a mail: JobID, Token and Step.ID are required")
	}
	if _, err := l.finishes.do(ctx, f); err != nil {
		return fmt.Errorf("finishing a mail: %w", err)
	}
	return nil
}

// finishAll writes all in one command where each is held by its token, which is
// how it nearly always is. Where not, a second one adds what is missing, and the
// records tell of whom the reservation was lost.
func (l *Ledger) finishAll(ctx context.Context, all []mail.Finish) []answer[struct{}] {
	failed, matched, err := l.update(ctx, len(all), func(i int) mongo.WriteModel {
		return mongo.NewUpdateOneModel().SetUpdate(l.finishing(all[i])).SetFilter(bson.D{
			{Key: "_id", Value: all[i].JobID},
			{Key: "token", Value: all[i].Token},
			{Key: "state", Value: op("$in", bson.A{mail.StateReserved, mail.StateUnknown})},
			{Key: "steps.id", Value: op("$ne", all[i].Step.ID)},
		})
	})
	if err != nil || len(failed) == 0 && matched == len(all) {
		return allAlike[struct{}](len(all), err)
	}
	failed, _, err = l.update(ctx, len(all), func(i int) mongo.WriteModel {
		return mongo.NewUpdateOneModel().SetUpdate(l.finishing(all[i])).SetFilter(bson.D{{Key: "_id", Value: all[i].JobID}})
	})
	if err != nil {
		return allAlike[struct{}](len(all), err)
	}
	ids := make(bson.A, len(all))
	for i, f := range all {
		ids[i] = f.JobID
	}
	docs, err := l.aggregate(ctx, op("$match", bson.D{{Key: "_id", Value: op("$in", ids)}}))
	if err != nil {
		return allAlike[struct{}](len(all), err)
	}
	held := map[[2]string]bool{}
	for _, d := range docs {
		for _, s := range d.Steps {
			held[[2]string{d.ID, s.ID}] = !s.Lost
		}
	}
	answers := make([]answer[struct{}], len(all))
	for i, f := range all {
		switch {
		case failed[i] != nil:
			answers[i].err = failed[i]
		case !held[[2]string{f.JobID, f.Step.ID}]:
			answers[i].err = mail.ErrReservationLost
		}
	}
	return answers
}

// finishing is the update of one. A step that is there already says that it was
// finished before.
func (l *Ledger) finishing(f mail.Finish) bson.A {
	holds := both(equal("$token", literal(f.Token)), oneOf("$state", mail.StateReserved, mail.StateUnknown))
	fresh := op("$not", bson.A{oneOfList(literal(f.Step.ID), "$steps.id")})
	applies := equal("$_holds", true)
	recipients := bson.A{}
	for _, r := range f.Recipients {
		recipients = append(recipients, recipient{Address: r.Address, State: r.State, Detail: cut(r.Detail)})
	}
	set := bson.D{
		{Key: "steps", Value: withSteps(bson.A{newStep(f.Step,
			bson.E{Key: "lost", Value: choose(applies, "$$REMOVE", true)})})},
		{Key: "state", Value: choose(applies, literal(f.State), "$state")},
		{Key: "recipients", Value: choose(applies, literal(recipients), "$recipients")},
		{Key: "expire_at", Value: choose(applies, l.expiry(f.State), "$expire_at")},
		{Key: "open", Value: choose(applies, openIn(f.State), "$open")},
	}
	if f.ProviderID != "" {
		set = append(set, bson.E{Key: "provider_id", Value: choose(applies, literal(f.ProviderID), "$provider_id")})
	}
	return bson.A{op("$set", bson.D{{Key: "_holds", Value: both(holds, fresh)}}), op("$set", set), op("$unset", "_holds")}
}

func oneOfList(a, list any) bson.D { return op("$in", bson.A{a, list}) }

// expiry is ExpireAt in a state.
func (l *Ledger) expiry(state mail.State) any {
	switch state {
	case mail.StateSent, mail.StateRefused, mail.StateDiscarded:
		return fromNow(l.cfg.Retention)
	}
	return "$$REMOVE"
}

// openIn is what the index of mails that nobody is sure of sorts by; it holds no
// others.
func openIn(state mail.State) any {
	if state == mail.StateReserved || state == mail.StateUnknown {
		return "$created_at"
	}
	return "$$REMOVE"
}
