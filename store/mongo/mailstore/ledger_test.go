package mailstore_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
	"github.com/gooutbox/outbox/sink/mail"
	mongostore "github.com/gooutbox/outbox/store/mongo"
	"github.com/gooutbox/outbox/store/mongo/mailstore"
)

func TestTheFirstStepBelongsToTheCallersTransaction(t *testing.T) {
	t.Parallel()
	db := servicetest.Database(t)
	l := newLedger(t, db)
	store, err := mongostore.New(db, mongostore.Config{})
	require.NoError(t, err)
	undone := errors.New("undone")
	for id, end := range map[string]error{"kept": nil, "gone": undone} {
		err := store.InTransaction(t.Context(), func(ctx context.Context) error {
			if err := l.Queue(ctx, mail.Queued{JobID: id, CorrelationID: "c"}); err != nil {
				return err
			}
			return end
		})
		require.ErrorIs(t, err, end)
	}
	found, err := l.StateOf(t.Context(), "c")
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Equal(t, "kept", found[0].JobID)
}

// TestAnExpiredLeaseEndsAsUnknownWhereTheMailWasReserved is the queue and the
// ledger together: what was reserved when its worker died may have been sent,
// what wasn't has not.
func TestAnExpiredLeaseEndsAsUnknownWhereTheMailWasReserved(t *testing.T) {
	t.Parallel()
	db := servicetest.Database(t)
	l := newLedger(t, db)
	store, err := mongostore.New(db, mongostore.Config{})
	require.NoError(t, err)
	require.NoError(t, store.EnsureIndexes(t.Context()))
	require.NoError(t, store.InTransaction(t.Context(), func(ctx context.Context) error {
		var jobs []core.Job
		for i := range 3 {
			jobs = append(jobs, core.Job{Sink: "mail", Event: core.Event{ID: fmt.Sprint("mail-", i), Type: "mail", Payload: []byte("{}")}})
		}
		_, err := store.Enqueue(ctx, jobs...)
		return err
	}))
	claimed, err := store.Claim(t.Context(), core.ClaimRequest{Sink: "mail", Max: 3})
	require.NoError(t, err)
	require.Len(t, claimed, 3)
	_, err = l.Reserve(t.Context(), mail.ReserveRequest{JobID: claimed[0].ID, Token: "t0", For: time.Hour})
	require.NoError(t, err)
	_, err = l.Reserve(t.Context(), mail.ReserveRequest{JobID: claimed[1].ID, Token: "t1", For: time.Hour})
	require.NoError(t, err)
	require.NoError(t, l.Finish(t.Context(), mail.Finish{
		JobID: claimed[1].ID, Token: "t1", State: mail.StateSent, Step: mail.Step{ID: mail.StepID(mail.StepSent, "t1"), Kind: mail.StepSent},
	}))
	_, err = db.Collection("outbox_jobs").UpdateMany(t.Context(), bson.D{}, bson.D{{Key: "$set", Value: bson.D{
		{Key: "lease_until", Value: time.Now().Add(-time.Minute)},
	}}})
	require.NoError(t, err)
	result, err := store.TakeBack(t.Context(), core.TakeBackRequest{NoRepeat: []string{"mail"}, Reservations: l})
	require.NoError(t, err)
	require.Equal(t, core.TakeBackResult{Ready: 2, Unknown: 1}, result)
	n, err := db.Collection("outbox_jobs").CountDocuments(t.Context(), bson.D{
		{Key: "state", Value: core.JobUnknown}, {Key: "event_id", Value: claimed[0].Lease.Event.ID},
	})
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
}

// TestMailsAtOnceShareTheirCommands counts what ten lanes cost.
func TestMailsAtOnceShareTheirCommands(t *testing.T) {
	t.Parallel()
	var commands, unsafe atomic.Int64
	monitor := &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		if e.CommandName != "update" && e.CommandName != "aggregate" {
			return
		}
		commands.Add(1)
		if w, err := e.Command.LookupErr("writeConcern", "w"); e.CommandName == "update" && (err != nil || w.StringValue() != "majority") {
			unsafe.Add(1)
		}
	}}
	l := newLedger(t, servicetest.Database(t, options.Client().SetMonitor(monitor)))
	const lanes, each = 10, 30
	var all sync.WaitGroup
	for lane := range lanes {
		all.Go(func() {
			for i := range each {
				id := fmt.Sprintf("m-%d-%d", lane, i)
				found, err := l.Reserve(t.Context(), mail.ReserveRequest{JobID: id, Token: "t-" + id, For: time.Hour})
				if err != nil || found.Verdict != mail.VerdictReserved {
					t.Errorf("reserving: %v, %v", found, err)
				}
				if err := l.Finish(t.Context(), mail.Finish{
					JobID: id, Token: "t-" + id, State: mail.StateSent, Step: mail.Step{ID: mail.StepID(mail.StepSent, "t-"+id), Kind: mail.StepSent},
				}); err != nil {
					t.Errorf("finishing: %v", err)
				}
			}
		})
	}
	all.Wait()
	perMail := float64(commands.Load()) / (lanes * each)
	t.Logf("%.2f commands a mail", perMail)
	require.Less(t, perMail, 1.25)
	require.Zero(t, unsafe.Load(), "a write that the majority need not have")
}

func TestAnEndedContextReservesNothing(t *testing.T) {
	t.Parallel()
	l := newLedger(t, servicetest.Database(t))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := l.Reserve(ctx, mail.ReserveRequest{JobID: "m", Token: "t", For: time.Hour})
	require.ErrorIs(t, err, context.Canceled)
	_, err = l.Mail(t.Context(), "m")
	require.ErrorIs(t, err, mail.ErrNoMail)
}

func TestReadsUseTheirIndexes(t *testing.T) {
	t.Parallel()
	db := servicetest.Database(t)
	newLedger(t, db)
	for field, filter := range map[string]bson.D{
		"correlation_id_1_created_at_1": {{Key: "correlation_id", Value: "c"}},
		"provider_id_1":                 {{Key: "provider_id", Value: "p"}},
		"open_1":                        {{Key: "open", Value: bson.D{{Key: "$exists", Value: true}}}},
	} {
		raw, err := db.RunCommand(t.Context(), bson.D{{Key: "explain", Value: bson.D{
			{Key: "find", Value: "outbox_mails"}, {Key: "filter", Value: filter},
		}}}).Raw()
		require.NoError(t, err)
		require.Contains(t, raw.Lookup("queryPlanner", "winningPlan").String(), `"indexName": "`+field+`"`)
	}
}

func TestAWrongConfigurationIsRefused(t *testing.T) {
	t.Parallel()
	_, err := mailstore.NewLedger(servicetest.Database(t), mailstore.Config{Prefix: "system.x", Retention: -1, Timeout: -1})
	require.ErrorContains(t, err, "Prefix is no name")
	require.ErrorContains(t, err, "Retention is negative")
	require.ErrorContains(t, err, "Timeout is negative")
}
