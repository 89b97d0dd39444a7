package tests

import (
	"os"
	"os/exec"
	"path/filepath"
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
	script := exec.CommandContext(t.Context(), "python3", "testdata/tutorial.py", s.config.URI, s.config.Database)
	script.Env = append(os.Environ(), "PYTHONPATH="+pymongo(t))
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

// pymongo returns a folder that holds the driver for Python, which pip installs
// once into the cache.
func pymongo(t *testing.T) string {
	t.Helper()
	const version = "4.15.3"
	cache, err := services.CacheDir()
	require.NoError(t, err)
	folder := filepath.Join(cache, "pymongo-"+version)
	if _, err := os.Stat(folder); err == nil {
		return folder
	}
	fresh, err := os.MkdirTemp(cache, "pymongo-") //nolint:usetesting // it is moved within the cache
	require.NoError(t, err)
	out, err := exec.CommandContext(t.Context(), "python3", "-m", "pip", "install", "--quiet",
		"--disable-pip-version-check", "--target", fresh, "pymongo=="+version).CombinedOutput()
	require.NoError(t, err, "%s", out)
	if err := os.Rename(fresh, folder); err != nil {
		_ = os.RemoveAll(fresh)
		require.DirExists(t, folder, "another process was to have installed it: %v", err)
	}
	return folder
}
