package main

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/gooutbox/outbox/internal/config"
	"github.com/gooutbox/outbox/internal/services"
	"github.com/gooutbox/outbox/internal/servicetest"
)

func TestMissingRightsAreSaidInShort(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"nothing of the kind": "nothing of the kind",
		`acquiring: (Unauthorized) not authorized on shop to execute command { find: "outbox", filter: { a: "}\"}", b: { c: 1 } }, $db: "shop" }; see --timeout`://
		`acquiring: (Unauthorized) the user may not find on shop.outbox: grant the role readWrite on the database shop; see --timeout`,
		`not authorized on admin to execute command { getParameter: 1, x: 1`:                 `the user may not getParameter on admin: grant the role clusterMonitor on the database admin`,
		`not authorized on local to execute command { aggregate: "oplog.rs", pipeline: [] }`: `the user may not aggregate on local.oplog.rs: grant the role read on the database local`,
		`1: not authorized on a to execute command { collMod: "x" }, 2: not authorized on b to execute command { listCollections: 1 }`://
		`1: the user may not collMod on a.x: grant the role dbAdmin on the database a, 2: the user may not listCollections on b: grant the role readWrite on the database b`,
	} {
		if got := shortened(text); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func TestLogsSayMissingRightsInShort(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"text", "json"} {
		var b strings.Builder
		logger := newLogger(&b, config.Log{Level: "info", Format: format}, config.Redactor{})
		refused := errors.New(`not authorized on shop to execute command { find: "outbox", filter: {} }`)
		logger.Warn("the store fails", "error", refused, "reason", refused.Error(), slog.Group("inner", "error", refused))
		if got := b.String(); strings.Count(got, "grant the role readWrite") != 3 || strings.Contains(got, "filter") {
			t.Errorf("%s: %s", format, got)
		}
	}
}

// TestCommandsSayMissingRightsInShort asks as a user who may nothing.
func TestCommandsSayMissingRightsInShort(t *testing.T) {
	t.Parallel()
	server := servicetest.StartMongod(t, services.MongodConfig{Auth: true})
	admin := servicetest.Client(t, server.URL())
	err := admin.Database("shop").RunCommand(t.Context(), bson.D{
		{Key: "createUser", Value: "nobody"}, {Key: "pwd", Value: "c4n4ry"}, {Key: "roles", Value: bson.A{}},
	}).Err()
	if err != nil {
		t.Fatal(err)
	}
	config := relayConfigFile(t, withUser(t, server.URL(), "nobody", "c4n4ry", "shop"), "shop", "127.0.0.1:1", "t")
	for _, args := range [][]string{{"stats"}, {"failed"}, {"indexes"}, {"pause", "sink", "events", "--by", "jo"}} {
		status, stdout, stderr := outbox(t, append(args, "-c", config)...)
		if status != exitFailed || stdout != "" || !strings.Contains(stderr, "grant the role") || strings.Contains(stderr, "lsid") ||
			strings.Contains(stderr, "execute command") {
			t.Errorf("%s: status %d, %s%s", args, status, stdout, stderr)
		}
	}
}
