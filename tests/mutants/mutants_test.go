// Package mutants shows that the suites guard the safeguards: each mutant takes
// one of them away, and the suite that is named must then fail. A mutant is laid
// over the sources while they are compiled; no file is changed.
package mutants

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gooutbox/outbox/internal/servicetest"
)

// mutant is one safeguard that is taken away.
type mutant struct {
	// rule is what no longer holds.
	rule string
	// file is where, from the root of the repository; from stands there exactly
	// once and becomes to.
	file, from, to string
	// suite is the package and the tests of it that must fail.
	suite, run string
	// long: its suite takes too long for every run; a soak runs it.
	long bool
}

// timeout of a suite: one that hangs has noticed too. Those that only a soak
// runs have three times as long.
const timeout = 2 * time.Minute

func TestEachRemovedSafeguardIsNoticed(t *testing.T) {
	servicetest.MongoURL(t) // without servers suites would skip, and notice nothing
	servicetest.Kafka(t)
	for _, m := range mutants {
		t.Run(m.rule, func(t *testing.T) {
			if m.long && os.Getenv("OUTBOX_SOAK") != "1" {
				t.Skip("runs in `make soak`")
			}
			t.Parallel()
			began := time.Now()
			out, failed := m.test(t)
			require.True(t, failed, "nothing noticed that %q no longer holds: %s passed\n%s", m.rule, m.suite, out)
			t.Logf("noticed after %s by %s", time.Since(began).Round(time.Second), failedTests(out))
		})
	}
}

// TestEveryMutantFindsItsText also looks at those that only a soak runs.
func TestEveryMutantFindsItsText(t *testing.T) {
	t.Parallel()
	for _, m := range mutants {
		m.source(t)
	}
}

// root is that of the repository.
func root(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("../..")
	require.NoError(t, err)
	return path
}

// source returns the file that the mutant changes.
func (m mutant) source(t *testing.T) []byte {
	t.Helper()
	source, err := os.ReadFile(filepath.Join(root(t), m.file))
	require.NoError(t, err)
	require.Equal(t, 1, bytes.Count(source, []byte(m.from)),
		"%s must hold this text exactly once; bring the mutant up to date:\n%s", m.file, m.from)
	return source
}

// test runs the suite with the mutant and tells whether it failed.
func (m mutant) test(t *testing.T) (out string, failed bool) {
	t.Helper()
	dir := t.TempDir()
	path, mutated := filepath.Join(root(t), m.file), filepath.Join(dir, filepath.Base(m.file))
	require.NoError(t, os.WriteFile(mutated, bytes.Replace(m.source(t), []byte(m.from), []byte(m.to), 1), 0o600))
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {path: mutated}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600))

	limit := timeout
	if m.long {
		limit *= 3
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit+time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "-vet=off", "-count=1", "-timeout", limit.String(), "-run", m.run, m.suite)
	cmd.Dir = root(t)
	// By environment, so that a relay that the suite builds has it too.
	cmd.Env = append(os.Environ(), "GOFLAGS=-overlay="+filepath.Join(dir, "overlay.json"), "OUTBOX_REQUIRE_SERVICES=1", "OUTBOX_SOAK=")
	text, err := cmd.CombinedOutput()
	out = string(text)
	require.NotContains(t, out, "[build failed]", "the mutant doesn't compile")
	require.NotContains(t, out, "[setup failed]", "the mutant doesn't compile")
	require.NotContains(t, out, "[no tests to run]", "the suite that must fail is gone")
	return out, err != nil
}

// failedTests names the tests that failed.
func failedTests(out string) string {
	var names []string
	for line := range strings.Lines(out) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "--- FAIL: "); ok {
			names = append(names, strings.Fields(name)[0])
		}
	}
	if len(names) == 0 {
		return "a panic or a time-out"
	}
	return strings.Join(names, ", ")
}
