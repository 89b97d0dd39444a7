package main

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/gooutbox/outbox/internal/services"
	"github.com/gooutbox/outbox/internal/servicetest"
)

// checked runs `outbox check --json` and returns its findings by name.
func checked(t *testing.T, config string) (status int, found map[string]finding) {
	t.Helper()
	status, stdout, stderr := outbox(t, "check", "--json", "--timeout", "1m", "-c", config)
	var answer struct {
		OK     bool      `json:"ok"`
		Checks []finding `json:"checks"`
	}
	if err := json.Unmarshal([]byte(stdout), &answer); err != nil || stderr != "" {
		t.Fatalf("%v: stdout %q, stderr %q", err, stdout, stderr)
	}
	if answer.OK != (status == exitOK) {
		t.Errorf("ok is %v with status %d", answer.OK, status)
	}
	found = map[string]finding{}
	for _, f := range answer.Checks {
		found[f.Check] = f
	}
	return status, found
}

func TestCheckAndIndexesOfAReplicaSet(t *testing.T) {
	t.Parallel()
	db, broker, topic := servicetest.Database(t), servicetest.Kafka(t)[0], servicetest.Topic(t, 1)
	config := relayConfigFile(t, servicetest.MongoURL(t), db.Name(), broker, topic)

	status, found := checked(t, config)
	if f := found["collections and indexes"]; status != exitOK || f.Status != statusWarn || f.Advice != "run outbox indexes" {
		t.Errorf("before indexes: status %d, %+v", status, f)
	}
	status, dry, _ := outbox(t, "indexes", "--dry-run", "-c", config)
	if status != exitOK || !strings.Contains(dry, "would make "+db.Name()+".outbox\n") {
		t.Errorf("dry run: status %d\n%s", status, dry)
	}
	if names, err := db.ListCollectionNames(t.Context(), bson.D{}); err != nil || len(names) != 0 {
		t.Errorf("check and a dry run made %q (%v)", names, err)
	}
	status, made, _ := outbox(t, "indexes", "-c", config)
	if status != exitOK || made != strings.ReplaceAll(dry, "would make", "made") {
		t.Errorf("indexes: status %d\n%s", status, made)
	}
	status, again, _ := outbox(t, "indexes", "-c", config)
	if status != exitOK || again != "nothing to make: all is there\n" {
		t.Errorf("indexes again: status %d\n%s", status, again)
	}
	status, found = checked(t, config)
	for _, name := range []string{"MongoDB", "MongoDB version", "replica set", "clock", "collections and indexes", "rights", "sink events"} {
		if found[name].Status != statusOK {
			t.Errorf("%s: %+v", name, found[name])
		}
	}
	if status != exitOK || found["oplog window"].Detail == "" {
		t.Errorf("status %d, %+v", status, found)
	}
	if status, text, stderr := outbox(t, "indexes", "--validator", "-c", config); status != exitOK {
		t.Fatal(status, text, stderr)
	}
	status, text, _ := outbox(t, "indexes", "--validator", "-c", config)
	if status != exitOK || strings.Count(text, "is as it was\n") != 2 {
		t.Errorf("validators again: status %d, %s", status, text)
	}
	if status, found = checked(t, config); status != exitOK || found["rights"].Status != statusOK {
		t.Errorf("with validators: status %d, %+v", status, found["rights"])
	}
	for _, name := range []string{"outbox_cursors", "outbox_jobs", "outbox_acts"} {
		if n, err := db.Collection(name).CountDocuments(t.Context(), bson.D{}); err != nil || n != 0 {
			t.Errorf("check left %d documents in %s (%v)", n, name, err)
		}
	}
}

// A validator that is not the store's may refuse what the store writes.
func TestCheckNamesAValidatorInTheWay(t *testing.T) {
	t.Parallel()
	db := servicetest.Database(t)
	config := relayConfigFile(t, servicetest.MongoURL(t), db.Name(), servicetest.Kafka(t)[0], "{{ .Type }}")
	if status, _, stderr := outbox(t, "indexes", "-c", config); status != exitOK {
		t.Fatal(stderr)
	}
	err := db.RunCommand(t.Context(), bson.D{{Key: "collMod", Value: "outbox_cursors"}, {Key: "validator", Value: bson.D{{Key: "secret", Value: 1}}}}).Err()
	if err != nil {
		t.Fatal(err)
	}
	_, found := checked(t, config)
	if f := found["rights"]; !strings.Contains(f.Detail, "outbox_cursors (insert): a validator") || f.Advice == "" || strings.Contains(f.Detail, "{") {
		t.Errorf("%+v", f)
	}
}

func TestCheckNamesAMissingTopic(t *testing.T) {
	t.Parallel()
	config := relayConfigFile(t, servicetest.MongoURL(t), servicetest.Database(t).Name(), servicetest.Kafka(t)[0], "no-such-topic")
	status, found := checked(t, config)
	if f := found["sink events"]; status != exitFailed || f.Status != statusFail || !strings.Contains(f.Detail, "no-such-topic") {
		t.Errorf("status %d, %+v", status, f)
	}
}

func TestCheckOfAStandaloneSaysWhatToDo(t *testing.T) {
	t.Parallel()
	db := servicetest.StandaloneDatabase(t)
	config := relayConfigFile(t, servicetest.StandaloneURL(t), db.Name(), servicetest.Kafka(t)[0], "{{ .Type }}")
	status, found := checked(t, config)
	if f := found["replica set"]; status != exitOK || f.Status != statusWarn || f.Advice != "start mongod with --replSet; one node is enough" {
		t.Errorf("one route: status %d, %+v", status, f)
	}
	two := strings.Replace(least, `mongodb://127.0.0.1:1/`, servicetest.StandaloneURL(t), 1) + "  - {name: other, sink: events}\n"
	status, found = checked(t, configFile(t, two))
	if f := found["replica set"]; status != exitFailed || f.Status != statusFail {
		t.Errorf("two routes: status %d, %+v", status, f)
	}
}

// A log that is none must not pass for one: nothing could be delivered, or
// everything again and again.
func TestCheckRefusesWhatIsNoOrdinaryCollection(t *testing.T) {
	t.Parallel()
	for name, create := range map[string]bson.D{
		"view":                   {{Key: "viewOn", Value: "real"}, {Key: "pipeline", Value: bson.A{}}},
		"time-series collection": {{Key: "timeseries", Value: bson.D{{Key: "timeField", Value: "occurred_at"}}}},
		"capped collection":      {{Key: "capped", Value: true}, {Key: "size", Value: 1 << 20}},
	} {
		db := servicetest.Database(t)
		if err := db.RunCommand(t.Context(), append(bson.D{{Key: "create", Value: "outbox"}}, create...)).Err(); err != nil {
			t.Fatal(err)
		}
		config := relayConfigFile(t, servicetest.MongoURL(t), db.Name(), servicetest.Kafka(t)[0], "{{ .Type }}")
		status, found := checked(t, config)
		f := found["log collection"]
		if status != exitFailed || f.Status != statusFail || !strings.Contains(f.Detail, name) || !strings.Contains(f.Advice, "store.mongodb.collection") {
			t.Errorf("%s: status %d, %+v", name, status, f)
		}
		if _, more := found["rights"]; more {
			t.Errorf("%s: rights are checked too: %+v", name, found)
		}
		status, _, stderr := outbox(t, "indexes", "-c", config)
		if status != exitFailed || !strings.Contains(stderr, name) || !strings.Contains(stderr, "ordinary collection") {
			t.Errorf("%s: indexes answer %d, %q", name, status, stderr)
		}
	}
}

func TestCheckOfServersThatAreAway(t *testing.T) {
	t.Parallel()
	config := relayConfigFile(t, "mongodb://"+freeAddress(t)+"/?serverSelectionTimeoutMS=200", "shop", freeAddress(t), "t")
	status, found := checked(t, config)
	if status != exitFailed || found["MongoDB"].Status != statusFail || found["sink events"].Status != statusFail ||
		!strings.Contains(found["MongoDB"].Detail, "connection refused") {
		t.Errorf("status %d, %+v", status, found)
	}
}

// TestCheckNamesMissingRights logs in as a user who may only read.
func TestCheckNamesMissingRights(t *testing.T) {
	t.Parallel()
	server := servicetest.StartMongod(t, services.MongodConfig{Auth: true})
	admin := servicetest.Client(t, server.URL())
	for user, role := range map[string]string{"reader": "read", "relay": "readWrite"} {
		err := admin.Database("shop").RunCommand(t.Context(), bson.D{
			{Key: "createUser", Value: user},
			{Key: "pwd", Value: "c4n4ry@"},
			{Key: "roles", Value: bson.A{bson.D{{Key: "role", Value: role}, {Key: "db", Value: "shop"}}}},
		}).Err()
		if err != nil {
			t.Fatal(err)
		}
	}
	as := func(user, password string) string {
		return relayConfigFile(t, withUser(t, server.URL(), user, password, "shop"), "shop", servicetest.Kafka(t)[0], "{{ .Type }}")
	}
	status, found := checked(t, as("reader", "c4n4ry@"))
	rights := found["rights"]
	if status != exitFailed || rights.Status != statusFail || rights.Advice != "grant the role readWrite on the database shop" {
		t.Errorf("status %d, %+v", status, rights)
	}
	for _, what := range []string{"write outbox_cursors (update)", "write outbox_jobs (insert)", "write outbox_acts (insert)", "clean outbox (remove)", "clean outbox_jobs (remove)"} {
		if !strings.Contains(rights.Detail, what) {
			t.Errorf("%q is not named in %q", what, rights.Detail)
		}
	}
	if strings.Contains(rights.Detail, "read outbox") || strings.Contains(rights.Detail, "changeStream") {
		t.Errorf("a right that is there is named in %q", rights.Detail)
	}
	if _, found = checked(t, as("relay", "c4n4ry@")); found["rights"].Status != statusOK || found["oplog window"].Status != statusWarn {
		t.Errorf("as relay: %+v", found)
	}
	status, found = checked(t, as("relay", "c4n4ry!"))
	if f := found["MongoDB"]; status != exitFailed || !strings.HasPrefix(f.Advice, "check user, password") || strings.Contains(fmt.Sprint(found), "c4n4ry") {
		t.Errorf("wrong password: status %d, %+v", status, f)
	}
}

// withUser is an address with another user, who is known to the database db.
func withUser(t *testing.T, address, user, password, db string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(user, password)
	query := u.Query()
	query.Set("authSource", db)
	u.RawQuery = query.Encode()
	return u.String()
}
