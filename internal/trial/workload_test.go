package trial_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/gooutbox/outbox/internal/servicetest"
	"github.com/gooutbox/outbox/internal/trial"
	mongostore "github.com/gooutbox/outbox/store/mongo"
)

func TestAWorkloadsLedgerHoldsWhatWasCommitted(t *testing.T) {
	t.Parallel()
	db := servicetest.Database(t)
	store, err := mongostore.New(db, mongostore.Config{})
	require.NoError(t, err)
	require.NoError(t, store.EnsureIndexes(t.Context()))
	w := &trial.Workload{Outbox: store, Database: db, Type: "account.changed", Transactions: 300, Keys: 8, Seed: 1}
	require.NoError(t, w.Prepare(t.Context()))
	require.NoError(t, w.Run(t.Context()))

	p := w.Progress()
	require.EqualValues(t, 300, p.Done)
	require.Zero(t, p.Failed)
	require.Positive(t, p.Aborted)
	require.Positive(t, p.Conflicts, "eight accounts and ten workers, and none met")
	committed, err := trial.Ledger(t.Context(), db)
	require.NoError(t, err)
	require.Greater(t, int64(len(committed)), p.Done-p.Aborted, "no transaction wrote two events")
	ids := make([]any, 0, len(committed))
	newest := map[string]int64{}
	for _, c := range committed {
		ids = append(ids, c.ID)
		newest[c.Key] = max(newest[c.Key], c.Version)
	}
	var stored []any
	require.NoError(t, db.Collection("outbox").Distinct(t.Context(), "_id", bson.D{}).Decode(&stored))
	require.ElementsMatch(t, ids, stored)
	total := int64(0)
	for _, version := range newest {
		total += version
	}
	require.EqualValues(t, len(committed), total, "a version is missing or there twice")
}
