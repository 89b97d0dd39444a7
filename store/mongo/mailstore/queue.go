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

// Queue keeps to mail.Ledger: in one command, in the transaction of ctx where it
// carries one of this client.
func (l *Ledger) Queue(ctx context.Context, mails ...mail.Queued) error {
	if len(mails) == 0 {
		return nil
	}
	models := make([]mongo.WriteModel, len(mails))
	for i, m := range mails {
		if m.JobID == "" {
			return errors.New("noting mails as queued: JobID is required")
		}
		fields := bson.D{{Key: "_id", Value: literal(m.JobID)}}
		for _, field := range []struct{ name, value string }{
			{"correlation_id", m.CorrelationID}, {"tenant", m.Tenant}, {"sink", m.Sink}, {"template", m.Template},
		} {
			if field.value != "" {
				fields = append(fields, bson.E{Key: field.name, Value: literal(field.value)})
			}
		}
		fields = append(fields, begun()...)
		for j := range fields {
			if fields[j].Key == "steps" {
				fields[j].Value = bson.A{newStep(mail.Step{ID: mail.StepID(mail.StepQueued, ""), Kind: mail.StepQueued})}
			}
		}
		models[i] = mongo.NewUpdateOneModel().SetFilter(bson.D{{Key: "_id", Value: m.JobID}}).SetUpsert(true).
			SetUpdate(bson.A{op("$replaceWith", choose(equal(op("$type", "$state"), "missing"), fields, "$$ROOT"))})
	}
	in := l.mails
	if s := mongo.SessionFromContext(ctx); s != nil && s.TransactionRunning() {
		if s.Client() != l.mails.Database().Client() {
			return errors.New("noting mails as queued: the transaction is another client's")
		}
		in = l.plain // a transaction has its own concerns
	}
	if _, err := in.BulkWrite(ctx, models, options.BulkWrite().SetOrdered(true)); err != nil {
		return fmt.Errorf("noting mails as queued: %w", err)
	}
	return nil
}
