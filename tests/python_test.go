package tests

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gooutbox/outbox/internal/services"
	mongostore "github.com/gooutbox/outbox/store/mongo"
)

// TestADocumentFromPythonArrivesUnchanged lets a Python program insert an event
// of the common tutorial shape in a transaction of its own.
func TestADocumentFromPythonArrivesUnchanged(t *testing.T) {
	t.Parallel()
	s := newStage(t, servers{}, mongostore.Config{})
	relay := s.hold()
	script, err := services.Python(t.Context(), "testdata/tutorial.py", s.config.URI, s.config.Database)
	require.NoError(t, err)
	script.Stderr = os.Stderr
	id, err := script.Output()
	require.NoError(t, err)
	s.awaitIDs(string(id))
	s.stop(relay)
	s.requireOnly(string(id))
	r := s.record(string(id))
	require.Equal(t, "order-42", r.Key)
	require.JSONEq(t, `{"order_id":"order-42","total":99.5,"lines":[{"sku":"a-1","count":2}],"note":"Grüße"}`, string(r.Value))
	require.Equal(t, "OrderPlaced", r.Headers["ce_type"])
	require.Equal(t, "2026-01-02T03:04:05.678Z", r.Headers["ce_time"])
	require.Equal(t, "order-42", r.Headers["ce_subject"])
}
