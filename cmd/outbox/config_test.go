package main

import (
	"bytes"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/gooutbox/outbox/internal/config"
)

const least = `store:
  mongodb: {uri: "mongodb://127.0.0.1:1/", database: shop}
sinks:
  events: {type: kafka, brokers: ["127.0.0.1:2"], topic: "{{ .Type }}"}
routes:
  - {name: kafka, sink: events}
`

func TestLeastConfigurationIsPrintedWithDefaults(t *testing.T) {
	t.Parallel()
	status, stdout, stderr := outbox(t, "config", "-c", configFile(t, least))
	if status != exitOK || stderr != "" {
		t.Errorf("status %d, stderr %q", status, stderr)
	}
	golden(t, "config-least.yaml", stdout)
}

func TestFullConfigurationIsPrintedWithoutSecrets(t *testing.T) {
	t.Setenv("SHOP_PASSWORD", "c4n4ry-one")
	secret := t.TempDir() + "/kafka"
	if err := os.WriteFile(secret, []byte("c4n4ry-two\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	status, stdout, stderr := outbox(t, "config", "-c", configFile(t, strings.ReplaceAll(full, "/run/secrets/kafka", secret)))
	if status != exitOK || stderr != "" {
		t.Errorf("status %d, stderr %q", status, stderr)
	}
	if strings.Contains(stdout, "c4n4ry") {
		t.Error("a secret is printed")
	}
	golden(t, "config-full.yaml", stdout)
}

// full sets every option that needs no file.
const full = `store:
  mongodb:
    uri: "mongodb://relay:${SHOP_PASSWORD}@127.0.0.1:1/?replicaSet=rs0"
    database: shop
    collection: events
    fields: {id: event, seq: s, aggregate: a, aggregate_id: b, event_type: c, payload: d, content_type: e, version: f,
      aggregate_version: g, headers: h, tenant: i, occurred_at: j, correlation_id: k, published_at: l, codec: m, key_id: n}
    poll_interval: 2s
    margin: 5m
    clock_slack: 1m
    tls: {}
sinks:
  events:
    type: kafka
    brokers: "one:9092, two:9092"
    topic: "shop.{{ .Aggregate }}"
    form: debezium
    source: /shop
    acks: leader
    compression: zstd
    timeout: 5s
    max_message_bytes: 2MiB
    create_topics: true
    client_id: shop
    tls: {server_name: kafka, insecure_skip_verify: true}
    sasl: {mechanism: scram-sha-512, username: relay, password: "${file:/run/secrets/kafka}"}
routes:
  - name: kafka
    sink: events
    start: 2026-01-31T08:00:00Z
    include_published: true
    match: {aggregates: [order], types: ["order.*"]}
    mark_published: true
    lanes: 2
    batch: {events: 100, bytes: 1MiB}
    window: 1000
    timeout: 20s
    backoff: {initial: 2s, max: 1m}
    outage_backoff: {initial: 3s, max: 2m}
    on_failure: hold
    max_attempts: 4
    max_parked: 50
workers:
  - sink: events
    lanes: 3
    batch_jobs: 20
    lease: 30s
    timeout: 10s
    backoff: {initial: 4s, max: 3m}
    type_backoff: {order.slow: {initial: 1m}}
    outage_backoff: {initial: 5s, max: 4m}
    rate: 14
    tenant_rate: 0.5
queue: {completed_retention: 2d, failed_retention: 14d, retain: all, max_redeliveries: 3}
relay: {owner: one, drain: 10s, cursor_lease: 5s, retention: 1d, clean_interval: 1m}
admin: {listen: "127.0.0.1:0", ready_lag: 10m}
log: {level: warn, format: json}
`

func TestConfigurationErrors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ old, new, want string }{
		"user in uri":   {"mongodb://127.0.0.1:1/", "mongodb://u:p@ss/x@h", "line 2: store.mongodb.uri: holds a character in user or password that must be percent-encoded: @ is %40, : is %3A, / is %2F, % is %25"},
		"percent":       {"mongodb://127.0.0.1:1/", "mongodb://u:c4n4ry%zz@h/", "line 2: store.mongodb.uri: holds a % in user or password that begins no percent-encoding: % itself is %25"},
		"other scheme":  {"mongodb://", "postgres://", "line 2: store.mongodb.uri: must begin with mongodb:// or mongodb+srv://"},
		"option":        {"mongodb://127.0.0.1:1/", "mongodb://h/?w=x&readConcernLevel=&connectTimeoutMS=soon", "line 2: store.mongodb.uri: has a wrong value for connectTimeoutMS"},
		"port":          {"mongodb://127.0.0.1:1/", "mongodb://h:99999/", "line 2: store.mongodb.uri: has a port that is no number from 1 to 65535"},
		"database":      {"database: shop", "database: sh/op", "line 2: store.mongodb.database: is no name that MongoDB allows"},
		"collection":    {"database: shop", "database: shop, collection: system.x", "line 2: store.mongodb: checking the configuration of the MongoDB store: Collection \"system.x\" is no name that MongoDB allows"},
		"serialize":     {"database: shop", "database: shop, serialize_keys: true", "line 2: store.mongodb.serialize_keys: unknown key; known are: clock_slack, codec, collection, database, fields, margin, poll_interval, polling, tls, uri"},
		"polling":       {"database: shop", "database: shop, poling: true", "line 2: store.mongodb.poling: unknown key, did you mean \"polling\"?"},
		"broker":        {"127.0.0.1:2", "u:c4n4ry@host", "line 4: sinks.events.brokers[0]: must be host:port, such as kafka-1.example.com:9092"},
		"topic":         {"{{ .Type }}", "{{ .Typ }}", "line 4: sinks.events.topic: makes no topic of a sample event: there is no .Typ; a template may use .Type, "},
		"form":          {"type: kafka", "type: kafka, form: xml", "line 4: sinks.events.form: must be one of cloudevents, debezium, bare"},
		"acks":          {"type: kafka", "type: kafka, acks: none", "line 4: sinks.events.acks: must be one of all, leader"},
		"sasl":          {"type: kafka", "type: kafka, sasl: {mechanism: plain}", "2 problems\n  line 4: sinks.events.sasl.username: is missing\n  line 4: sinks.events.sasl.password: is missing"},
		"sasl password": {"type: kafka", "type: kafka, sasl: {mechanism: scram-sha-256, username: u, password: \"c4n4ry\\u0007\"}", "line 4: sinks.events.sasl: has a username or password that SCRAM can't carry"},
		"ca":            {"type: kafka", "type: kafka, tls: {ca: /nowhere}", "line 4: sinks.events.tls.ca: the file /nowhere can't be read: no such file or directory"},
		"half a pair":   {"type: kafka", "type: kafka, tls: {cert: /nowhere}", "line 4: sinks.events.tls.key: is missing: cert needs it"},
		"no sink":       {"sink: events", "sink: event", "line 6: routes[0].sink: no such sink; sinks are: events"},
		"match":         {"name: kafka", "name: kafka, match: {types: [\"*.placed\"]}", "line 6: routes[0].match.types[0]: must be a name; a star may stand at its end only"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := configFile(t, strings.Replace(least, c.old, c.new, 1))
			for _, command := range []string{"config", "relay", "check", "indexes"} {
				status, stdout, stderr := outbox(t, command, "-c", path)
				if status != exitUsage || stdout != "" || !strings.HasPrefix(stderr, "outbox: "+path+": "+c.want) {
					t.Fatalf("%s: status %d, stdout %q, stderr\n%s\nwant\n%s", command, status, stdout, stderr, c.want)
				}
				if strings.Contains(stderr, "c4n4ry") {
					t.Fatalf("a secret is shown: %s", stderr)
				}
			}
		})
	}
}

// TestEveryOptionIsDocumented reads the tables of docs/configuration.md.
func TestEveryOptionIsDocumented(t *testing.T) {
	t.Parallel()
	docs, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	options := []any{config.Default(), &config.Route{}}
	for _, o := range storeKinds {
		options = append(options, o())
	}
	for _, o := range sinkKinds {
		options = append(options, o())
	}
	for _, o := range options {
		for _, name := range optionNames(reflect.TypeOf(o).Elem()) {
			if !regexp.MustCompile("`([a-z_]+[.])?"+regexp.QuoteMeta(name)+"[:`]|^## "+name).Match(docs) && !bytes.Contains(docs, []byte("\n## "+name+"\n")) {
				t.Errorf("docs/configuration.md doesn't tell of %s", name)
			}
		}
	}
}

func optionNames(t reflect.Type) []string {
	var names []string
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	for f := range t.Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("yaml"), ","); name != "" {
			names = append(append(names, name), optionNames(f.Type)...)
		}
	}
	return names
}
