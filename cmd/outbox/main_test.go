package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var rewrite = flag.Bool("update", false, "write the golden files anew")

// asProgram is the variable that makes the test binary be the program itself,
// for tests that need a process of its own.
const asProgram = "OUTBOX_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	os.Exit(m.Run())
}

// outbox runs a command line in this process.
func outbox(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	status = run(t.Context(), args, &out, &errs)
	return status, out.String(), errs.String()
}

// configFile writes a configuration and returns its path.
func configFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "outbox.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// golden compares got with a file in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (go test -update writes it anew)\ngot:\n%s\nwant:\n%s", path, got, want)
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	for _, command := range []string{
		"", "relay", "check", "indexes", "config", "version",
		"stats", "explain", "failed", "get", "acts", "retry", "discard", "pause", "resume", "forget-cursor", "lint", "mail", "mail preview", "mail check", "mail resolve",
	} {
		status, stdout, stderr := outbox(t, append(strings.Fields(command), "--help")...)
		if status != exitOK || stderr != "" {
			t.Errorf("%s --help: status %d, stderr %q", command, status, stderr)
		}
		golden(t, "help-"+strings.ReplaceAll(command, " ", "-")+".txt", stdout)
	}
}

func TestWrongArgumentsEndWithTheirOwnStatus(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"rellay"}, `outbox: unknown command "rellay" for "outbox"; outbox --help lists the commands`},
		{[]string{"relay", "now"}, `outbox: unknown command "now" for "outbox relay"; outbox --help lists the commands`},
		{[]string{"relay", "--confg", "x"}, "outbox: unknown flag: --confg; see outbox relay --help"},
		{[]string{"check"}, "outbox: reading the configuration: open outbox.yaml: no such file or directory; name it with --config"},
		{[]string{"relay", "-c", "/nowhere/outbox.yaml"}, "outbox: reading the configuration: open /nowhere/outbox.yaml: no such file or directory"},
	} {
		status, stdout, stderr := outbox(t, c.args...)
		if status != exitUsage || stdout != "" || strings.TrimSpace(stderr) != c.want {
			t.Errorf("%q: status %d, stdout %q, stderr %q, want %q", c.args, status, stdout, stderr, c.want)
		}
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	status, stdout, _ := outbox(t, "version")
	if status != exitOK || !strings.HasPrefix(stdout, "outbox ") || !strings.Contains(stdout, "go1.") {
		t.Errorf("status %d, %q", status, stdout)
	}
}
