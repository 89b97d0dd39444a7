package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/services"
	"github.com/gooutbox/outbox/internal/servicetest"
	mongostore "github.com/gooutbox/outbox/store/mongo"
)

// guarded is a server on which everybody logs in with the least rights that
// docs/mongodb.md gives.
type guarded struct {
	t     *testing.T
	url   string
	admin *mongo.Database
}

func newGuarded(t *testing.T) *guarded {
	t.Helper()
	server := servicetest.StartMongod(t, services.MongodConfig{Auth: true})
	g := &guarded{t, server.URL(), servicetest.Client(t, server.URL()).Database("admin")}
	page, err := os.ReadFile("../../docs/mongodb.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```json\n(.*?)```").FindAllSubmatch(page, -1)
	for _, block := range blocks {
		var command bson.D
		if err := bson.UnmarshalExtJSON(block[1], false, &command); err != nil {
			t.Fatal(err)
		}
		g.run(command)
		role := command[0].Value.(string)
		g.run(bson.D{{Key: "createUser", Value: role}, {Key: "pwd", Value: "secret"}, {Key: "roles", Value: bson.A{role}}})
	}
	if len(blocks) != 3 {
		t.Fatalf("the page has %d roles, not 3", len(blocks))
	}
	g.run(bson.D{{Key: "createUser", Value: "checker"}, {Key: "pwd", Value: "secret"}, {Key: "roles", Value: bson.A{"outboxRelay", "outboxOperator"}}})
	return g
}

func (g *guarded) run(command bson.D) {
	g.t.Helper()
	if err := g.admin.RunCommand(g.t.Context(), command).Err(); err != nil {
		g.t.Fatalf("%s: %v", command[0].Key, err)
	}
}

// as is the address for a user.
func (g *guarded) as(user string) string {
	u, err := url.Parse(g.url)
	if err != nil {
		g.t.Fatal(err)
	}
	u.User = url.UserPassword(user, "secret")
	query := u.Query()
	query.Set("authSource", "admin")
	u.RawQuery = query.Encode()
	return u.String()
}

func (g *guarded) shop(user string) *mongo.Database {
	return servicetest.Client(g.t, g.as(user)).Database("shop")
}

// publish appends and enqueues, as a producer that writes nothing of its own.
func (g *guarded) publish(key string) {
	g.t.Helper()
	s, err := mongostore.New(g.shop("outboxProducer"), mongostore.Config{SerializeKeys: true})
	if err != nil {
		g.t.Fatal(err)
	}
	for range 2 { // the second time the dedup key is known
		err = s.InTransaction(g.t.Context(), func(ctx context.Context) error {
			if err := s.Append(ctx, core.Event{AggregateID: key, Type: "order.placed", Payload: []byte("{}")}); err != nil {
				return err
			}
			job := mail(key)
			job.ID, job.DedupKey = "", key
			_, err := s.Enqueue(ctx, job, core.Job{Sink: "events", Event: core.Event{AggregateID: key, Type: "order.mailed", Payload: []byte("{}")}})
			return err
		})
		if err != nil {
			g.t.Fatal("producer: ", err)
		}
	}
}

// Each role is enough for its work: a producer that publishes, a relay that
// delivers, parks, works and cleans, an operator who acts; and for no more.
func TestLeastRights(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "order.mailed"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Close)
	config := func(user string) string {
		return configFile(t, fmt.Sprintf(`store:
  mongodb: {uri: %q, database: shop}
sinks:
  events: {type: kafka, brokers: [%q]}
routes:
  - {name: kafka, sink: events, max_attempts: 1}
workers:
  - {sink: events}
admin: {listen: "127.0.0.1:0"}
relay: {clean_interval: 1s}
`, g.as(user), broker.ListenAddrs()[0]))
	}
	root := configFile(t, fmt.Sprintf("store:\n  mongodb: {uri: %q, database: shop}\nsinks:\n  events: {type: kafka, brokers: [x:1]}\nroutes:\n  - {name: kafka, sink: events}\n", g.url))
	if status, _, stderr := outbox(t, "indexes", "-c", root); status != exitOK {
		t.Fatal(stderr)
	}
	g.publish("o-1")

	p := start(t, "relay", "-c", config("outboxRelay"))
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(p.log())
		}
	})
	operator := config("outboxOperator")
	must := func(args ...string) string {
		t.Helper()
		status, stdout, stderr := outbox(t, append(args, "-c", operator)...)
		if status != exitOK {
			t.Errorf("%q: status %d: %s%s", args, status, stdout, stderr)
		}
		return stdout
	}
	// The topic of the events is missing: they are parked, tried once, and failed.
	eventually(t, "the failed events", func() bool { return strings.Count(must("failed"), "kafka/") >= 2 })
	eventually(t, "the job that was done", func() bool { return strings.Contains(must("failed", "--state", "completed"), "order.mailed") })
	must("lint")
	must("stats")
	id := regexp.MustCompile(`kafka/[0-9a-f-]{36}`).FindString(must("failed"))
	must("explain", id)
	must("get", id)
	must("retry", id, "--reason", "the topic is there")
	must("discard", "--cursor", "kafka", "--reason", "not wanted", "--state", "failed")
	must("pause", "sink", "events")
	must("resume", "sink", "events")
	if acts := must("acts"); !strings.Contains(acts, "resume") {
		t.Errorf("acts: %s", acts)
	}
	p.signal(syscall.SIGTERM)
	if status := p.status(); status != exitOK || strings.Contains(p.log(), "not authorized") || strings.Contains(p.log(), "may not") {
		t.Errorf("relay: status %d:\n%s", status, p.log())
	}
	must("forget-cursor", "kafka", "--yes")
	if status, stdout, stderr := outbox(t, "check", "-c", config("checker")); status != exitOK || !strings.Contains(stdout, "ok    rights") || !strings.Contains(stdout, "ok    oplog window") {
		t.Errorf("check: status %d: %s%s", status, stdout, stderr)
	}
	g.refused(t)
}

// refused tries what the roles don't permit.
func (g *guarded) refused(t *testing.T) {
	t.Helper()
	for _, user := range []string{"outboxProducer", "outboxRelay", "outboxOperator"} {
		db := g.shop(user)
		_, err := db.Collection("orders").InsertOne(t.Context(), bson.D{})
		tries := map[string]error{"write to orders": err}
		_, err = db.Collection("outbox").UpdateMany(t.Context(), bson.D{}, bson.D{{Key: "$set", Value: bson.D{{Key: "x", Value: 1}}}})
		tries["change events"] = err
		if user != "outboxRelay" {
			_, err = db.Collection("outbox").DeleteMany(t.Context(), bson.D{})
			tries["remove events"] = err
		}
		if user != "outboxProducer" {
			_, err = db.Collection("outbox").InsertOne(t.Context(), bson.D{})
			tries["add events"] = err
		} else {
			tries["read events"] = db.Collection("outbox").FindOne(t.Context(), bson.D{}).Err()
		}
		for what, err := range tries {
			if !isUnauthorized(err) {
				t.Errorf("%s may %s: %v", user, what, err)
			}
		}
	}
}
