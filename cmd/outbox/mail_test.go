package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// mailTemplates writes a folder of templates.
func mailTemplates(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o750))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	return dir
}

func greeting(t *testing.T, more map[string]string) string {
	t.Helper()
	files := map[string]string{
		"greet/sample.json": `{"name":"Ada"}`, "greet/default/subject.txt": "Hi {{.name}}", "greet/default/body.html": "<p>Hi {{.name}}</p>",
		"greet/de/subject.txt": "Hallo {{.name}}", "greet/de/body.txt": "Hallo\n",
	}
	for name, text := range more {
		files[name] = text
	}
	return mailTemplates(t, files)
}

func TestPreviewWritesTextAndHTML(t *testing.T) {
	t.Parallel()
	dir, out := greeting(t, nil), t.TempDir()
	data := filepath.Join(out, "data.json")
	require.NoError(t, os.WriteFile(data, []byte(`{"name":"<Bo>"}`), 0o600))
	status, stdout, stderr := outbox(t, "mail", "preview", "greet", "--templates", dir, "--data", data, "--out", out)
	require.Equal(t, exitOK, status, stderr)
	require.Equal(t, filepath.Join(out, "greet.txt")+"\n"+filepath.Join(out, "greet.html")+"\n", stdout)
	text, err := os.ReadFile(filepath.Join(out, "greet.txt"))
	require.NoError(t, err)
	require.Equal(t, "Subject: Hi <Bo>\n\nHi <Bo>\n", string(text))
	html, err := os.ReadFile(filepath.Join(out, "greet.html"))
	require.NoError(t, err)
	require.Equal(t, "<p>Hi &lt;Bo&gt;</p>", string(html))

	// Without data it is the sample's; a language without HTML has none.
	out = t.TempDir()
	status, stdout, stderr = outbox(t, "mail", "preview", "greet", "--templates", dir, "--locale", "de-CH", "--out", out)
	require.Equal(t, exitOK, status, stderr)
	require.Equal(t, filepath.Join(out, "greet.txt")+"\n", stdout)
	text, err = os.ReadFile(filepath.Join(out, "greet.txt"))
	require.NoError(t, err)
	require.Equal(t, "Subject: Hallo Ada\n\nHallo\n", string(text))
}

func TestMailCheckNamesAllThatFail(t *testing.T) {
	t.Parallel()
	status, stdout, stderr := outbox(t, "mail", "check", "--templates", greeting(t, nil))
	require.Equal(t, exitOK, status, stderr)
	require.Equal(t, "greet de: well\ngreet default: well\n", stdout)

	status, stdout, stderr = outbox(t, "mail", "check", "--templates", greeting(t, map[string]string{
		"greet/fr/subject.txt": "Salut {{.nom}}", "greet/fr/body.txt": "x", "bye/default/subject.txt": "s", "bye/default/body.txt": "t",
	}))
	require.Equal(t, exitFailed, status)
	require.Contains(t, stdout, "greet de: well")
	require.Contains(t, stderr, `no entry for key "nom"`)
	require.Contains(t, stderr, "bye has no sample.json")
}

func TestMailArgumentsAreChecked(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"there is no folder /nowhere":  {"mail", "check", "--templates", "/nowhere"},
		`there is no template "gruss"`: {"mail", "preview", "gruss", "--templates", greeting(t, nil)},
		"got 0 arguments":              {"mail", "preview"},
		"reading the data":             {"mail", "preview", "greet", "--templates", greeting(t, nil), "--data", "/nowhere.json"},
	} {
		status, _, stderr := outbox(t, args...)
		require.Equal(t, exitUsage, status, stderr)
		require.Contains(t, strings.TrimSpace(stderr), want)
	}
}
