package mailstore

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/gooutbox/outbox/sink/mail"
)

// Reserved keeps to core.Reservations.
func (l *Ledger) Reserved(ctx context.Context, jobIDs []string) (map[string]bool, error) {
	docs, err := l.aggregate(ctx, op("$match", bson.D{
		{Key: "_id", Value: op("$in", append([]string{}, jobIDs...))},
		{Key: "state", Value: op("$in", bson.A{mail.StateReserved, mail.StateUnknown})},
	}), op("$project", bson.D{{Key: "state", Value: 1}}))
	if err != nil {
		return nil, fmt.Errorf("asking which mails may have been sent: %w", err)
	}
	found := make(map[string]bool, len(docs))
	for _, d := range docs {
		found[d.ID] = true
	}
	return found, nil
}

// Mail keeps to mail.Ledger.
func (l *Ledger) Mail(ctx context.Context, jobID string) (mail.Record, error) {
	docs, err := l.aggregate(ctx, op("$match", bson.D{{Key: "_id", Value: jobID}}))
	if err != nil {
		return mail.Record{}, fmt.Errorf("reading a mail: %w", err)
	}
	if len(docs) == 0 {
		return mail.Record{}, fmt.Errorf("reading a mail: %w", mail.ErrNoMail)
	}
	return docs[0].record(), nil
}

// oldest sorts.
func oldest(field string) bson.D {
	return op("$sort", bson.D{{Key: field, Value: 1}, {Key: "_id", Value: 1}})
}

// StateOf keeps to mail.Ledger.
func (l *Ledger) StateOf(ctx context.Context, correlationID string) ([]mail.Record, error) {
	if correlationID == "" {
		return nil, nil
	}
	docs, err := l.aggregate(ctx, op("$match", bson.D{{Key: "correlation_id", Value: correlationID}}),
		oldest("created_at"), op("$limit", mail.MaxOfCorrelation))
	if err != nil {
		return nil, fmt.Errorf("reading the mails of a business process: %w", err)
	}
	return records(docs), nil
}

// EventsOf keeps to mail.Ledger.
func (l *Ledger) EventsOf(ctx context.Context, correlationID string) ([]mail.Step, error) {
	found, err := l.StateOf(ctx, correlationID)
	return mail.StepsOf(found), err
}

// Unknown keeps to mail.Ledger.
func (l *Ledger) Unknown(ctx context.Context, limit int) ([]mail.Record, error) {
	if limit <= 0 {
		return nil, nil
	}
	docs, err := l.aggregate(ctx, op("$match", bson.D{
		{Key: "open", Value: op("$exists", true)},
		{Key: "$or", Value: bson.A{
			bson.D{{Key: "state", Value: mail.StateUnknown}},
			bson.D{
				{Key: "state", Value: mail.StateReserved},
				{Key: "$expr", Value: op("$lte", bson.A{"$reserved_until", "$$NOW"})},
			},
		}},
	}), oldest("open"), op("$limit", limit))
	if err != nil {
		return nil, fmt.Errorf("listing mails of unknown outcome: %w", err)
	}
	return records(docs), nil
}
