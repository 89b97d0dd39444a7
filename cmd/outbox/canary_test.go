package main

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/gooutbox/outbox/internal/servicetest"
)

// Passwords with characters that every escaping treats in its own way.
const (
	mongoCanary = `c4n4ry/1@ "%é`
	saslCanary  = `c4n4ry+2&<'é"\`
)

// noCanary refuses any form of the passwords in what a program showed.
func noCanary(t *testing.T, where, shown string) {
	t.Helper()
	for _, secret := range []string{mongoCanary, saslCanary, amqpCanary, awsCanary} {
		for _, form := range []string{
			"c4n4ry", secret[len("c4n4ry"):], url.QueryEscape(secret)[len("c4n4ry"):], url.PathEscape(secret)[len("c4n4ry"):],
			base64.StdEncoding.EncodeToString([]byte(secret)), base64.StdEncoding.EncodeToString([]byte("\x00me\x00" + secret)),
		} {
			if strings.Contains(shown, form) {
				t.Errorf("%s shows %q:\n%s", where, form, shown)
				return
			}
		}
	}
	if shown == "" {
		t.Errorf("%s shows nothing at all", where)
	}
}

// canaryConfig logs in to MongoDB and Kafka with the passwords.
func canaryConfig(t *testing.T, mongoURI, database, broker, mechanism string) string {
	t.Helper()
	secret := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(secret, []byte(saslCanary+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(`store:
  mongodb: {uri: %q, database: %q}
sinks:
  events:
    type: kafka
    brokers: [%q]
    topic: canary
    sasl: {mechanism: %s, username: me, password: "${file:%s}"}
routes:
  - {name: kafka, sink: events}
admin: {listen: "127.0.0.1:0"}
log: {level: debug}
`, mongoURI, database, broker, mechanism, secret)
	return configFile(t, text)
}

// saslBroker is a Kafka that refuses the password.
func saslBroker(t *testing.T, mechanism string) string {
	t.Helper()
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.EnableSASL(),
		kfake.Superuser(strings.ToUpper(mechanism), "me", "another password"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Close)
	return broker.ListenAddrs()[0]
}

func withPassword(t *testing.T, uri string) string {
	t.Helper()
	u, err := url.Parse(uri)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword("me", mongoCanary)
	return u.String()
}

func TestNoCommandShowsAPassword(t *testing.T) {
	t.Parallel()
	uri := withPassword(t, servicetest.MongoURL(t))
	for _, mechanism := range []string{"plain", "scram-sha-256", "scram-sha-512"} {
		config := canaryConfig(t, uri, "shop", saslBroker(t, mechanism), mechanism)
		for _, command := range []string{"config", "check", "indexes"} {
			_, stdout, stderr := outbox(t, command, "-c", config)
			noCanary(t, command, stdout+stderr)
		}
	}
}

// TestARelayThatMayNotLogInShowsNoPassword looks at log, health and metrics:
// once MongoDB refuses the login, once Kafka does.
func TestARelayThatMayNotLogInShowsNoPassword(t *testing.T) {
	t.Parallel()
	db := servicetest.Database(t)
	appendEvents(t, db, 1)
	for refusing, config := range map[string]string{
		"the store has failed": canaryConfig(t, withPassword(t, servicetest.MongoURL(t)), db.Name(), saslBroker(t, "plain"), "plain"),
		"sink events takes":    canaryConfig(t, servicetest.MongoURL(t), db.Name(), saslBroker(t, "scram-sha-512"), "scram-sha-512"),
	} {
		t.Run(refusing, func(t *testing.T) {
			t.Parallel()
			p := start(t, "relay", "-c", config)
			admin := p.admin()
			var ready string
			eventually(t, refusing, func() bool {
				_, ready = get(t, admin+"/readyz")
				return strings.Contains(ready, refusing)
			})
			_, metrics := get(t, admin+"/metrics")
			p.signal(syscall.SIGTERM)
			if status := p.status(); status != exitOK {
				t.Errorf("status %d", status)
			}
			noCanary(t, "relay", p.log()+ready+metrics)
		})
	}
}
