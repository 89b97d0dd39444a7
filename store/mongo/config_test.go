package mongo

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
)

func TestEveryProblemOfAConfigurationIsToldAtOnce(t *testing.T) {
	t.Parallel()
	_, err := New(servicetest.Mongo(t).Database("x"), Config{
		Collection: "a$b", MaxEventBytes: LargestEventBytes + 1, PollInterval: -1,
		Fields: Fields{Type: "a.b", Payload: "_id", Tenant: "same", CorrelationID: "same"},
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"Collection", "MaxEventBytes", "PollInterval", "Fields.Type", "Fields.Payload", "Fields.Tenant and Fields.CorrelationID"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not named in: %v", want, err)
		}
	}
}

// With w=1 or a secondary an event or a lease could be lost in a failover.
func TestTheConnectionStringCantWeakenConcerns(t *testing.T) {
	t.Parallel()
	url := servicetest.MongoURL(t)
	url += "&w=1&journal=false&readConcernLevel=local&readPreference=secondaryPreferred"
	var sent commands
	db := servicetest.DatabaseOf(t, servicetest.Client(t, url, sent.options()))
	s := newStore(t, db, Config{AllowNoTransaction: true})
	sent.take()
	if err := s.Append(t.Context(), order("plain")); err != nil {
		t.Fatal(err)
	}
	c := acquire(t, s, "kafka", "me")
	if err := c.Save(t.Context(), []core.Mark{markAt(t, "plain", 1, 0)}); err != nil {
		t.Fatal(err)
	}
	appendInTransaction(t, s)
	if _, err := s.Clean(t.Context(), core.CleanRequest{Retention: time.Hour}); err != nil {
		t.Fatal(err)
	}
	writes := 0
	for _, e := range sent.take() {
		concern, _ := e.Command.Lookup("writeConcern", "w").StringValueOK()
		level, _ := e.Command.Lookup("readConcern", "level").StringValueOK()
		first := e.Command.Lookup("startTransaction").Type == bson.TypeBoolean
		switch e.CommandName {
		case "insert", "update", "delete", "findAndModify", "commitTransaction":
			writes++
			if concern != "majority" && !first {
				t.Errorf("%s: write concern %q", e.CommandName, concern)
			}
			if first && level != "snapshot" {
				t.Errorf("%s: a transaction begins with read concern %q", e.CommandName, level)
			}
		case "find", "aggregate":
			if level != "majority" {
				t.Errorf("%s: read concern %q", e.CommandName, level)
			}
		}
		if mode := e.Command.Lookup("$readPreference", "mode"); mode.Type == bson.TypeString && mode.StringValue() != "primary" &&
			!slices.Contains([]string{"hello"}, e.CommandName) && mode.StringValue() != "primaryPreferred" {
			t.Errorf("%s: read preference %s", e.CommandName, mode)
		}
	}
	if writes < 5 {
		t.Errorf("%d writes were seen, want at least 5", writes)
	}
}

func appendInTransaction(t *testing.T, s *Store) {
	t.Helper()
	if err := s.InTransaction(t.Context(), func(ctx context.Context) error { return s.Append(ctx, order("in a transaction")) }); err != nil {
		t.Fatal(err)
	}
}
