package mongo

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/gooutbox/outbox/codec/aesgcm"
	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
)

// TestJobsSealedUnderOldAndNewKeysAreOpened goes through a rotation with stored
// jobs, until the old key is gone.
func TestJobsSealedUnderOldAndNewKeysAreOpened(t *testing.T) {
	t.Parallel()
	db := servicetest.Database(t)
	oldKey, newKey := aesgcm.GenerateKey(), aesgcm.GenerateKey()
	with := func(primary string, keys map[string]aesgcm.Key) *Store {
		codec, err := aesgcm.New(aesgcm.Config{Primary: primary, Keys: keys})
		require.NoError(t, err)
		return newStore(t, db, Config{Codec: codec})
	}
	before := with("2025", map[string]aesgcm.Key{"2025": oldKey})
	during := with("2026", map[string]aesgcm.Key{"2025": oldKey, "2026": newKey})
	after := with("2026", map[string]aesgcm.Key{"2026": newKey})

	first := enqueue(t, before, mail("secret-1"))[0]
	second := enqueue(t, during, mail("secret-2"))[0]
	for id, key := range map[string]string{first.ID: "2025", second.ID: "2026"} {
		raw := jobNamed(t, before, id)
		require.Equal(t, key, raw.Lookup("key_id").StringValue())
		require.Equal(t, aesgcm.Name, raw.Lookup("codec").StringValue())
		_, sealed := raw.Lookup("payload").Binary()
		require.NotContains(t, string(sealed), "secret")
	}

	opened := claim(t, during, 2)
	require.ElementsMatch(t, []string{"secret-1", "secret-2"}, payloads(opened))
	require.Zero(t, settleAll(t, during, core.Settlement{Kind: core.GiveBack}, opened...))

	for _, c := range claim(t, after, 2) {
		if c.ID == second.ID {
			require.NoError(t, c.Err)
			require.Equal(t, "secret-2", string(c.Lease.Event.Payload))
			continue
		}
		require.Equal(t, core.Rejected, core.ResultOf("", c.Err).Outcome)
		require.ErrorContains(t, c.Err, `the key "2025" is not in the key ring`)
	}
}

// TestAPayloadCopiedToAnotherJobDoesNotOpen: the id is authenticated with it.
func TestAPayloadCopiedToAnotherJobDoesNotOpen(t *testing.T) {
	t.Parallel()
	codec, err := aesgcm.New(aesgcm.Config{Primary: "k", Keys: map[string]aesgcm.Key{"k": aesgcm.GenerateKey()}})
	require.NoError(t, err)
	s := newStore(t, servicetest.Database(t), Config{Codec: codec})
	receipts := enqueue(t, s, mail("secret-1"), mail("secret-2"))
	_, sealed := jobNamed(t, s, receipts[0].ID).Lookup("payload").Binary()
	setJob(t, s, receipts[1].ID, bson.D{{Key: "payload", Value: bson.Binary{Data: sealed}}})
	for _, c := range claim(t, s, 2) {
		if c.ID == receipts[0].ID {
			require.NoError(t, c.Err)
			continue
		}
		require.ErrorIs(t, c.Err, aesgcm.ErrAltered)
		require.Equal(t, core.Rejected, core.ResultOf("", c.Err).Outcome)
	}
}
