package main

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
	sqlitestore "github.com/gooutbox/outbox/store/sqlite"
)

// sqliteConfigFile is a configuration of one route from a file to Kafka.
func sqliteConfigFile(t *testing.T, path, broker, topic string) string {
	t.Helper()
	return configFile(t, fmt.Sprintf(`store:
  sqlite: {path: %q}
sinks:
  events: {type: kafka, brokers: [%q], topic: %q, max_message_bytes: 1000}
routes:
  - {name: kafka, sink: events, on_failure: hold}
admin: {listen: "127.0.0.1:0"}
`, path, broker, topic))
}

func TestEachCommandWorksOnASQLiteFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "shop.db")
	config := sqliteConfigFile(t, path, servicetest.Kafka(t)[0], servicetest.Topic(t, 1))
	says := func(want string, args ...string) string {
		t.Helper()
		status, stdout, stderr := outbox(t, append(args, "-c", config)...)
		if status != exitOK || stderr != "" || !strings.Contains(stdout, want) {
			t.Errorf("%v: status %d, stderr %q, stdout %q, want %q", args, status, stderr, stdout, want)
		}
		return stdout
	}

	// Nothing is there yet, and nothing is made by looking.
	if status, _, stderr := outbox(t, "stats", "-c", config); status != exitFailed || !strings.Contains(stderr, "there is no outbox here") {
		t.Errorf("stats of nothing: status %d, %q", status, stderr)
	}
	says("there is no outbox in", "check")
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("looking made the file: %v", err)
	}
	says("would make the tables", "indexes", "--dry-run")
	says("made the tables of the outbox, layout 1", "indexes")
	says("nothing to make", "indexes")
	says("layout 1", "check")

	s, err := sqlitestore.New(path, sqlitestore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // the test is over
	large := strings.Repeat("x", 2000)
	err = s.InTransaction(t.Context(), func(tx *sql.Tx) error {
		return s.Append(t.Context(), tx,
			core.Event{ID: "small", AggregateID: "a", Type: "order.placed", Payload: []byte("{}")},
			core.Event{ID: "large", AggregateID: "b", Type: "order.placed", Payload: []byte(large)},
			core.Event{ID: "behind", AggregateID: "b", Type: "order.placed", Payload: []byte("{}")})
	})
	if err != nil {
		t.Fatal(err)
	}
	says("3 events", "lint")

	p := start(t, "relay", "-c", config)
	explained := func(id, want string) {
		t.Helper()
		eventually(t, id+" "+want, func() bool {
			_, stdout, _ := outbox(t, "explain", id, "-c", config)
			return strings.Contains(stdout, want)
		})
	}
	explained("small", "every cursor has passed it")
	says("kafka/large", "failed")
	says("holds the key", "explain", "behind")
	says("2000", "get", "kafka/large")
	says("1 job", "discard", "kafka/large", "--by", "me", "--reason", "too large")
	explained("behind", "it was delivered")
	says("discard", "acts")
	says("", "pause", "sink", "events", "--by", "me", "--reason", "test")
	says("PAUSED", "stats")
	says("", "resume", "sink", "events", "--by", "me", "--reason", "test")
	p.signal(syscall.SIGTERM)
	if status := p.status(); status != exitOK {
		t.Errorf("the relay ended with status %d", status)
	}
}
