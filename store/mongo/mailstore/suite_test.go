package mailstore_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/gooutbox/outbox/internal/servicetest"
	"github.com/gooutbox/outbox/sink/mail"
	"github.com/gooutbox/outbox/sink/mail/mailtest"
	"github.com/gooutbox/outbox/store/mongo/mailstore"
)

func newLedger(t testing.TB, db *mongo.Database) *mailstore.Ledger {
	t.Helper()
	l, err := mailstore.NewLedger(db, mailstore.Config{})
	require.NoError(t, err)
	require.NoError(t, l.EnsureIndexes(t.Context()))
	return l
}

func TestLedger(t *testing.T) {
	t.Parallel()
	mailtest.RunLedger(t, func(t *testing.T) mail.Ledger { return newLedger(t, servicetest.Database(t)) })
}

func TestList(t *testing.T) {
	t.Parallel()
	mailtest.RunList(t, func(t *testing.T) mail.SuppressionList {
		l, err := mailstore.NewList(servicetest.Database(t), mailstore.Config{})
		require.NoError(t, err)
		require.NoError(t, l.EnsureIndexes(t.Context()))
		return l
	})
}
