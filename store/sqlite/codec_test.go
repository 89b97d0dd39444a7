package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gooutbox/outbox/core"
)

// masked is a codec that turns bytes round and checks the event's id.
type masked struct{ lost bool }

func (masked) Name() string { return "masked" }

func (masked) Seal(_ context.Context, payload, additional []byte) ([]byte, string, error) {
	return mask(append(bytes.Clone(additional), payload...)), "key-1", nil
}

func (m masked) Open(_ context.Context, sealed, additional []byte, keyID string) ([]byte, error) {
	open := mask(sealed)
	switch {
	case m.lost:
		return nil, core.MarkRejected(errors.New("the key is gone"))
	case keyID != "key-1" || !bytes.HasPrefix(open, additional):
		return nil, core.MarkRejected(errors.New("sealed for another event"))
	}
	return open[len(additional):], nil
}

func mask(b []byte) []byte {
	masked := make([]byte, len(b))
	for i := range b {
		masked[i] = ^b[i]
	}
	return masked
}

func TestPayloadsAreSealedInTheFileAndOpenedForTheSink(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "shop.db")
	s := newStore(t, path, Config{Codec: masked{}})
	e := event("a")
	e.Payload = []byte(`{"card":"4711"}`)
	require.NoError(t, s.InTransaction(t.Context(), func(tx *sql.Tx) error {
		_, err := s.Enqueue(t.Context(), tx, core.Job{Event: e, Sink: "mail"})
		return errors.Join(err, s.Append(t.Context(), tx, e))
	}))
	for _, table := range []string{"outbox", "outbox_jobs"} {
		for _, stored := range texts(t, s, "SELECT CAST(payload AS TEXT) FROM "+table) {
			require.NotContains(t, stored, "4711")
		}
	}
	c := acquire(t, s)
	batch, err := c.Read(t.Context(), core.ReadLimit{})
	require.NoError(t, err)
	require.Equal(t, e.Payload, batch.Entries[0].Event.Payload)

	// Parked, it stays as it was sealed.
	parked := []core.Parked{{Entry: batch.Entries[0], Sink: "mail", State: core.JobReady}}
	require.NoError(t, c.Park(t.Context(), parked))
	open, err := c.OpenJobs(t.Context())
	require.NoError(t, err)
	got, err := c.ClaimJobs(t.Context(), open, time.Minute)
	require.NoError(t, err)
	require.NoError(t, got[0].Err)
	require.Equal(t, e.Payload, got[0].Lease.Event.Payload)

	// Who lacks the codec, or the key, is told so, and that trying again is of no
	// use.
	for name, codec := range map[string]core.Codec{"none": nil, "lost": masked{lost: true}} {
		other := newStore(t, path, Config{Codec: codec})
		jobs, err := other.Claim(t.Context(), core.ClaimRequest{Sink: "mail", Max: 1})
		require.NoError(t, err)
		require.Len(t, jobs, 1, name)
		require.Equal(t, core.Rejected, core.ResultOf("", jobs[0].Err).Outcome, "%s: %v", name, jobs[0].Err)
		_, err = other.Settle(t.Context(), []core.Settlement{{Job: jobs[0], Kind: core.GiveBack}})
		require.NoError(t, err)
	}
}

func TestAParkedEventThatIsGoneFromTheLogIsKept(t *testing.T) {
	t.Parallel()
	s := newStore(t, filepath.Join(t.TempDir(), "shop.db"), Config{Codec: masked{}})
	require.NoError(t, commit(t.Context(), s, event("a")))
	c := acquire(t, s)
	batch, err := c.Read(t.Context(), core.ReadLimit{})
	require.NoError(t, err)
	require.NoError(t, run(t.Context(), s, "DELETE FROM outbox"))
	require.NoError(t, c.Park(t.Context(), []core.Parked{{Entry: batch.Entries[0], Sink: "mail", State: core.JobReady}}))
	open, err := c.OpenJobs(t.Context())
	require.NoError(t, err)
	got, err := c.ClaimJobs(t.Context(), open, time.Minute)
	require.NoError(t, err)
	require.Equal(t, []byte("{}"), got[0].Lease.Event.Payload)
	require.NoError(t, got[0].Err)
}
