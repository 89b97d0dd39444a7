package config_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"

	"github.com/gooutbox/outbox/internal/config"
)

const canary = `c4n4ry"&<é/`

func TestSecretsAreNotPrinted(t *testing.T) {
	t.Parallel()
	values := struct {
		Secret config.Secret
		URI    config.URI
	}{canary, config.URI("mongodb://user:" + url.QueryEscape(canary) + "@host/?authMechanismProperties=AWS_SESSION_TOKEN:c4n4ry&tls=true")}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("start", "secret", values.Secret, "uri", values.URI, "both", values)
	slog.New(slog.NewTextHandler(&log, nil)).Info("start", "secret", values.Secret, "uri", values.URI, "both", values)
	asJSON, err := json.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("%v %+v %#v %s %q %s %s", values, values, values, values.Secret, values.URI, asJSON, log.String())
	if strings.Contains(text, "c4n4ry") {
		t.Errorf("the secret is shown: %s", text)
	}
	if want := "mongodb://(hidden)@host/?authMechanismProperties=(hidden)&tls=true"; values.URI.String() != want {
		t.Errorf("uri = %s, want %s", values.URI, want)
	}
}

func TestMalformedAddressesHideTheirPasswords(t *testing.T) {
	t.Parallel()
	for _, uri := range []string{
		"mongodb://user:c4n4ry@x@host", "mongodb://user:c4n4ry/x?@host/db", "user:c4n4ry@host", "mongodb:/user:c4n4ry@host",
		"mongodb://u:c4n4ry#@h:27017", "mongodb://h/?tlsCertificateKeyFilePassword=c4n4ry", "c4n4ry@host",
	} {
		if shown := config.URI(uri).String(); strings.Contains(shown, "c4n4ry") {
			t.Errorf("%s is shown as %s", uri, shown)
		}
	}
	for _, uri := range []string{"mongodb://h:1,i:2/db?replicaSet=rs0", "", "nonsense"} {
		if shown := config.URI(uri).String(); shown != uri {
			t.Errorf("%s is shown as %s", uri, shown)
		}
	}
}

func TestRedactorHidesEveryForm(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	w := config.NewRedactor([]string{canary, "abc"}).Writer(&b)
	quoted, _ := json.Marshal(canary)
	line := fmt.Sprintf("%s|%s|%s|%q|%s|%s|abc\n", canary, url.QueryEscape(canary), url.PathEscape(canary), canary, quoted,
		base64.StdEncoding.EncodeToString([]byte(canary)))
	if n, err := w.Write([]byte(line)); n != len(line) || err != nil {
		t.Fatalf("Write = %d, %v", n, err)
	}
	if want := `(hidden)|(hidden)|(hidden)|"(hidden)"|"(hidden)"|(hidden)|abc` + "\n"; b.String() != want {
		t.Errorf("got  %swant %s", b.String(), want)
	}
}

// What was read before a problem was found is hidden too.
func TestRedactorOfARefusedFileKnowsItsSecrets(t *testing.T) {
	t.Parallel()
	_, redactor, err := config.Load([]byte(least+"more: 1\n"), kinds, source())
	if err == nil {
		t.Fatal("was accepted")
	}
	if got := redactor.String("dialing hunter2 or hun%74er2"); got != "dialing (hidden) or (hidden)" {
		t.Errorf("got %s", got)
	}
}
