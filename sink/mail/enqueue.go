package mail

import (
	"context"
	"errors"
	"fmt"

	"github.com/gooutbox/outbox/core"
)

// Enqueuer is a store that takes jobs.
type Enqueuer interface {
	// Enqueue writes jobs in the transaction that ctx carries.
	Enqueue(ctx context.Context, jobs ...core.Job) ([]core.Receipt, error)
}

// Enqueue enqueues jobs of NewJob, and writes the first step of their mails into
// the ledger, in the transaction that ctx carries. A duplicate's story is left as
// it is.
func Enqueue(ctx context.Context, store Enqueuer, ledger Ledger, jobs ...core.Job) ([]core.Receipt, error) {
	for i := range jobs {
		if jobs[i].ID != "" {
			return nil, errors.New("enqueuing mails: a job has an id of its own: leave it empty, the ledger knows mails by their jobs' ids")
		}
	}
	receipts, err := store.Enqueue(ctx, jobs...)
	if err != nil {
		return receipts, err
	}
	var mails []Queued
	for i, receipt := range receipts {
		if receipt.Duplicate {
			continue
		}
		template := ""
		if m, err := Decode(jobs[i].Payload); err == nil {
			template = m.Template
		}
		mails = append(mails, Queued{
			JobID: receipt.ID, CorrelationID: jobs[i].CorrelationID, Tenant: jobs[i].Tenant, Sink: jobs[i].Sink, Template: template,
		})
	}
	if len(mails) == 0 {
		return receipts, nil
	}
	if err := ledger.Queue(ctx, mails...); err != nil {
		return receipts, fmt.Errorf("writing enqueued mails into the ledger: %w", err)
	}
	return receipts, nil
}
