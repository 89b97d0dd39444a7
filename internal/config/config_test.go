package config_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gooutbox/outbox/internal/config"
)

// brokerOptions stands for a sink, databaseOptions for a store.
type brokerOptions struct {
	Brokers []string        `yaml:"brokers,required"`
	Topic   string          `yaml:"topic,required"`
	Acks    string          `yaml:"acks" enum:"all,leader"`
	Timeout config.Duration `yaml:"timeout" min:"10ms"`
	TLS     *tlsOptions     `yaml:"tls"`
	SASL    *saslOptions    `yaml:"sasl"`
}

type tlsOptions struct {
	CA string `yaml:"ca"`
}

type saslOptions struct {
	Username string        `yaml:"username,required"`
	Password config.Secret `yaml:"password,required"`
}

func (o *brokerOptions) Validate(report config.Report) {
	if o.TLS != nil && o.TLS.CA == "none" {
		report("tls.ca", "is no file")
	}
}

type databaseOptions struct {
	URI      config.URI        `yaml:"uri,required"`
	Database string            `yaml:"database,required"`
	Fields   map[string]string `yaml:"fields"`
	Limit    config.Size       `yaml:"limit" min:"1KiB"`
}

var kinds = config.Kinds{
	Stores: map[string]func() any{"db": func() any { return &databaseOptions{Limit: 1 << 20} }},
	Sinks: map[string]func() any{"broker": func() any {
		return &brokerOptions{Acks: "all", Timeout: config.Duration(10 * time.Second)}
	}},
}

const password = `hunter2 "&<@:/`

func source() config.Source {
	return config.Source{
		Getenv: func(name string) (string, bool) {
			v, ok := map[string]string{
				"DB_URL": "db://me:hun%74er2@localhost/?x=1", "PASSWORD": password, "EMPTY": "", "LANES": "7",
				"TRICKY": "a: [${PASSWORD}]\nroutes: x",
			}[name]
			return v, ok
		},
		ReadFile: func(path string) ([]byte, error) {
			if path == "/run/secrets/password" {
				return []byte(password + "\n"), nil
			}
			return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
		},
	}
}

const least = `store:
  db: {uri: "${DB_URL}", database: shop}
sinks:
  events: {type: broker, brokers: ["127.0.0.1:9092"], topic: "{{ .Type }}"}
routes:
  - {name: kafka, sink: events}
`

func load(t *testing.T, text string) *config.File {
	t.Helper()
	f, _, err := config.Load([]byte(text), kinds, source())
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestLeastConfigurationGetsDefaults(t *testing.T) {
	t.Parallel()
	f := load(t, least)
	db := f.Store.Options.(*databaseOptions)
	if f.Store.Type != "db" || db.URI.Reveal() != "db://me:hun%74er2@localhost/?x=1" || db.Database != "shop" || db.Limit != 1<<20 {
		t.Errorf("store = %q %+v", f.Store.Type, db)
	}
	sink := f.Sinks["events"].Options.(*brokerOptions)
	if sink.Topic != "{{ .Type }}" || sink.Acks != "all" || len(sink.Brokers) != 1 {
		t.Errorf("sink = %+v", sink)
	}
	r := f.Routes[0]
	if r.Name != "kafka" || r.Sink != "events" || r.Lanes != 5 || r.Batch.Events != 500 || r.Batch.Bytes != 8<<20 || r.Window != 10_000 {
		t.Errorf("route = %+v", r)
	}
	if f.Relay.Drain != config.Duration(30*time.Second) || f.Relay.Retention != config.Duration(7*24*time.Hour) || f.Admin.Listen != "" {
		t.Errorf("relay = %+v, admin = %+v", f.Relay, f.Admin)
	}
}

func TestEveryOptionIsRead(t *testing.T) {
	t.Parallel()
	f := load(t, `
store: {db: {uri: "db://x", database: "$${EMPTY}", fields: {payload: body}, limit: 2MiB}}
sinks:
  a:
    type: broker
    brokers: &b ["one:1", "two:2"]
    topic: t
    timeout: 1m30s
    tls: {}
    sasl: {username: me, password: "${file:/run/secrets/password}"}
  b: {type: broker, brokers: *b, topic: "${TRICKY}", sasl: {username: me, password: "<${PASSWORD}>"}}
routes:
  - name: one
    sink: a
    start: 2026-01-31T08:00:00+01:00
    include_published: true
    match: {aggregates: [order], types: [order.placed, order.paid]}
    mark_published: true
    lanes: ${LANES}
    batch: {events: 10, bytes: 64KiB}
    window: 20
  - {name: two, sink: b, start: now}
relay: {owner: me, drain: 5s, cursor_lease: 500ms, retention: 1d12h}
admin: {listen: "0.0.0.0:9090", allow_remote: true}
log: {level: debug, format: json}
`)
	db := f.Store.Options.(*databaseOptions)
	if db.Database != "${EMPTY}" || db.Fields["payload"] != "body" || db.Limit != 2<<20 {
		t.Errorf("store = %+v", db)
	}
	a, b := f.Sinks["a"].Options.(*brokerOptions), f.Sinks["b"].Options.(*brokerOptions)
	if a.SASL.Password.Reveal() != password || b.SASL.Password.Reveal() != "<"+password+">" {
		t.Errorf("passwords = %q, %q", a.SASL.Password.Reveal(), b.SASL.Password.Reveal())
	}
	if a.TLS == nil || b.TLS != nil || b.Brokers[1] != "two:2" || b.Topic != "a: [${PASSWORD}]\nroutes: x" {
		t.Errorf("sinks = %+v, %+v", a, b)
	}
	r := f.Routes[0]
	if !r.Start.At.Equal(time.Date(2026, 1, 31, 7, 0, 0, 0, time.UTC)) || !f.Routes[1].Start.Now || r.Lanes != 7 ||
		!r.IncludePublished || !r.MarkPublished || r.Batch != (config.Batch{Events: 10, Bytes: 64 << 10}) || r.Match.Types[1] != "order.paid" {
		t.Errorf("route = %+v", r)
	}
	if f.Relay.CursorLease != config.Duration(500*time.Millisecond) || f.Relay.Retention != config.Duration(36*time.Hour) {
		t.Errorf("relay = %+v", f.Relay)
	}
}

func TestAListMayBeOneValue(t *testing.T) {
	t.Parallel()
	f := load(t, strings.Replace(least, `["127.0.0.1:9092"]`, `"one:1, two:2"`, 1)+"  - {name: b, sink: events, match: {types: order.placed}}\n")
	if got := f.Sinks["events"].Options.(*brokerOptions).Brokers; len(got) != 2 || got[1] != "two:2" {
		t.Errorf("brokers = %q", got)
	}
	if got := f.Routes[1].Match.Types; len(got) != 1 || got[0] != "order.placed" {
		t.Errorf("types = %q", got)
	}
}

func TestProblemsAreNamedWithPathAndLine(t *testing.T) {
	t.Parallel()
	replace := func(old, by string) string {
		if !strings.Contains(least, old) {
			t.Fatalf("%q is not in the least configuration", old)
		}
		return strings.Replace(least, old, by, 1)
	}
	for name, c := range map[string]struct{ text, want string }{
		"empty":              {"", "line 1: the file is empty: it needs store, sinks and routes"},
		"only comments":      {"# nothing\n", "line 1: the file is empty: it needs store, sinks and routes"},
		"list":               {"- a\n", "line 1: must be a mapping of keys to values, not a list"},
		"two documents":      {least + "---\na: b\n", "line 7: a second document begins here: one file holds one configuration"},
		"bad yaml":           {"store: {\n", "line 1: is no valid YAML: did not find expected node content"},
		"password as anchor": {"a: *hunter2\n", "is no valid YAML: a value begins with * and names no anchor: put it in quotes"},
		"unknown key":        {replace("topic:", "topik:"), "2 problems\n  line 4: sinks.events.topik: unknown key, did you mean \"topic\"?\n  line 4: sinks.events.topic: is missing"},
		"unknown top key":    {least + "admn: {}\n", `line 7: admn: unknown key, did you mean "admin"?`},
		"far from any":       {replace("name: kafka,", "name: kafka, zzzzzzzzzz: 1,"), "line 6: routes[0].zzzzzzzzzz: unknown key; known are: backoff, batch, include_published, lanes, mark_published, match, max_attempts, max_parked, name, on_failure, outage_backoff, sink, start, timeout, window"},
		"twice":              {replace("name: kafka,", "name: kafka, name: other,"), "line 6: routes[0].name: is given twice"},
		"unset variable":     {replace("DB_URL", "DB_URI"), "line 2: store.db.uri: the environment variable DB_URI is not set"},
		"empty variable":     {replace("DB_URL", "EMPTY"), "line 2: store.db.uri: is empty: ${EMPTY} holds nothing"},
		"shell form":         {replace("${DB_URL}", "${DB_URL:-x}"), "line 2: store.db.uri: ${…} takes the name of an environment variable (letters, digits, underscores) or file:/path; write $${ where you mean the two characters"},
		"not closed":         {replace("${DB_URL}", "${DB_URL"), "line 2: store.db.uri: ${ is not closed: write $${ where you mean the two characters"},
		"no such file":       {replace("${DB_URL}", "${file:/nowhere}"), "line 2: store.db.uri: the file /nowhere can't be read: file does not exist"},
		"null":               {replace("database: shop", "database: "), "line 2: store.db.database: has no value: give one or remove the key"},
		"unknown store":      {replace("db: {", "bd: {"), `line 2: store.bd: unknown store, did you mean "db"?`},
		"two stores":         {replace("sinks:", "  db2: {}\nsinks:"), `line 3: store.db2: unknown store, did you mean "db"?`},
		"no store":           {replace(`  db: {uri: "${DB_URL}", database: shop}`, ""), "line 1: store: names no store; known are: db"},
		"unknown type":       {replace("type: broker", "type: brokr"), `line 4: sinks.events.type: unknown type, did you mean "broker"?`},
		"no type":            {replace("type: broker, ", ""), "line 4: sinks.events.type: is missing; known are: broker"},
		"sink as word":       {"store: {db: {uri: x, database: y}}\nsinks: {events: broker}\nroutes: [{name: a, sink: events}]\n", "line 2: sinks.events: must be a mapping with a type, not a single value"},
		"no such sink":       {replace("sink: events", "sink: event"), "line 6: routes[0].sink: no such sink; sinks are: events"},
		"same cursor":        {least + "  - {name: kafka, sink: events}\n", "line 7: routes[1].name: routes[0] has this name too: each route is a cursor of its own"},
		"route name":         {replace("name: kafka", "name: a/b"), "line 6: routes[0].name: must be 1 to 64 letters, digits, dots, dashes or underscores, and begin with a letter or digit"},
		"list wanted":        {replace(`["127.0.0.1:9092"]`, "{a: b}"), "line 4: sinks.events.brokers: must be a list, not a mapping"},
		"no words":           {replace(`["127.0.0.1:9092"]`, "', '"), "line 4: sinks.events.brokers: is empty: name at least one"},
		"value wanted":       {replace(`"{{ .Type }}"`, "[a]"), "line 4: sinks.events.topic: must be a single value, not a list"},
		"own tag":            {replace(`"{{ .Type }}"`, "!hunter2 x"), "line 4: sinks.events.topic: begins with !: put the value in quotes"},
		"enum":               {replace("type: broker,", "type: broker, acks: some,"), "line 4: sinks.events.acks: must be one of all, leader"},
		"number":             {replace("name: kafka,", "name: kafka, lanes: many,"), "line 6: routes[0].lanes: must be a whole number"},
		"small number":       {replace("name: kafka,", "name: kafka, lanes: 0,"), "line 6: routes[0].lanes: must be at least 1"},
		"bool":               {replace("name: kafka,", "name: kafka, mark_published: yes,"), "line 6: routes[0].mark_published: must be true or false"},
		"duration":           {least + "relay: {drain: 30}\n", "line 7: relay.drain: must be a length of time with its unit, such as 500ms, 30s, 15m, 24h or 7d"},
		"short duration":     {least + "relay: {cursor_lease: 1ms}\n", "line 7: relay.cursor_lease: must be at least 100ms"},
		"negative duration":  {least + "relay: {drain: -1s}\n", "line 7: relay.drain: must not be negative, and at most 100 years"},
		"size":               {replace("name: kafka,", "name: kafka, batch: {bytes: 8 megs},"), "line 6: routes[0].batch.bytes: has an unknown unit: B, KiB, MiB, GiB, KB, MB and GB are known"},
		"small size":         {replace("database: shop", "database: shop, limit: 1"), "line 2: store.db.limit: must be at least 1KiB"},
		"start":              {replace("name: kafka,", "name: kafka, start: yesterday,"), "line 6: routes[0].start: must be beginning, now or a time such as 2026-01-31T08:00:00Z"},
		"backoff":            {replace("name: kafka,", "name: kafka, backoff: {initial: 1h},"), "line 6: routes[0].backoff.max: must not be less than initial, 1h"},
		"owner":              {least + "relay: {owner: a b}\n", "line 7: relay.owner: must be 1 to 64 letters, digits, dots, dashes or underscores, and begin with a letter or digit"},
		"own rule":           {replace("type: broker,", "type: broker, tls: {ca: none},"), "line 4: sinks.events.tls.ca: is no file"},
		"merge key":          {replace("name: kafka,", "<<: {}, name: kafka,"), "line 6: routes[0]: keys must be plain words: lists, mappings, aliases and << are not taken as keys"},
		"remote admin":       {least + "admin: {listen: \":9090\"}\n", "line 7: admin.listen: is reachable from other machines: use 127.0.0.1, or set admin.allow_remote to true"},
		"bad admin":          {least + "admin: {listen: localhost}\n", "line 7: admin.listen: must be host:port, such as 127.0.0.1:9090"},
		"missing parts":      {"log: {}\n", "3 problems\n  line 1: store: is missing\n  line 1: sinks: is missing\n  line 1: routes: are missing: name at least one, or one of workers"},
		"no text":            {replace("database: shop", "database: ''"), "line 2: store.db.database: is empty"},
		"no routes":          {strings.Split(least, "routes:")[0] + "routes: []\n", "line 5: routes: are missing: name at least one, or one of workers"},
		"policy":             {replace("name: kafka,", "name: kafka, on_failure: stop,"), "line 6: routes[0].on_failure: must be one of skip, hold"},
		"attempts":           {replace("name: kafka,", "name: kafka, max_attempts: 0,"), "line 6: routes[0].max_attempts: must be at least 1"},
		"worker without":     {least + "workers: [{lanes: 2}]\n", "line 7: workers[0].sink: is missing"},
		"worker's sink":      {least + "workers: [{sink: mail}]\n", "line 7: workers[0].sink: no such sink; sinks are: events"},
		"two workers":        {least + "workers: [{sink: events}, {sink: events}]\n", "line 7: workers[1].sink: workers[0] is for this sink too: raise its lanes"},
		"rate":               {least + "workers: [{sink: events, rate: -1}]\n", "line 7: workers[0].rate: must be a number a second, such as 14 or 0.5; 0 is no limit"},
		"lease":              {least + "workers: [{sink: events, lease: 10ms}]\n", "line 7: workers[0].lease: must be at least 1s"},
		"type backoff":       {least + "workers: [{sink: events, type_backoff: {slow.one: {initial: 1h}}}]\n", "line 7: workers[0].type_backoff.slow.one.max: must not be less than initial, 1h"},
		"redeliveries":       {least + "queue: {max_redeliveries: 0}\n", "line 7: queue.max_redeliveries: must be at least 2"},
		"several": {
			replace("topic:", "topik:") + "relay:\n  drain: soon\n",
			"3 problems\n  line 4: sinks.events.topik: unknown key, did you mean \"topic\"?\n  line 4: sinks.events.topic: is missing\n" +
				"  line 8: relay.drain: must be a length of time with its unit, such as 500ms, 30s, 15m, 24h or 7d",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := config.Load([]byte(c.text), kinds, source())
			if err == nil {
				t.Fatal("was accepted")
			}
			if err.Error() != c.want {
				t.Errorf("\ngot  %s\nwant %s", err, c.want)
			}
		})
	}
}

func TestWorkersNeedNoRoute(t *testing.T) {
	t.Parallel()
	text := strings.Split(least, "routes:")[0] + `workers:
  - {sink: events, lanes: 7, rate: 14, tenant_rate: 0.5, type_backoff: {slow.one: {initial: 5s}}}
queue: {max_redeliveries: 2}
`
	f := load(t, text)
	w := f.Workers[0]
	if w.Lanes != 7 || w.Rate != 14 || w.TenantRate != 0.5 || w.Lease != config.Duration(time.Minute) || f.Queue.MaxRedeliveries != 2 {
		t.Errorf("worker %+v, queue %+v", w, f.Queue)
	}
	want := config.Backoff{Initial: config.Duration(5 * time.Second), Max: config.Duration(10 * time.Minute)}
	if got := w.TypeBackoff["slow.one"].In(w.Backoff); got != want {
		t.Errorf("backoff of a type = %+v", got)
	}
	printed, err := f.YAML()
	if err != nil {
		t.Fatal(err)
	}
	again, err := load(t, string(printed)).YAML()
	if err != nil || !bytes.Equal(again, printed) || !strings.Contains(string(printed), "tenant_rate: 0.5\n") {
		t.Errorf("printed and read again: %v\n%s\n%s", err, printed, again)
	}
}

// Commands that speak to the store alone run where the sinks' secrets are not.
func TestStoreAloneIsReadAsStrictly(t *testing.T) {
	t.Parallel()
	const text = `store:
  db: {uri: "${DB_URL}", database: shop}
queue: {retain: all, completed_retention: 2d}
sinks:
  events: {type: unheard-of, password: "${NOT_SET}"}
routes: []
`
	f, _, err := config.Load([]byte(text), kinds.StoreOnly(), source())
	if err != nil {
		t.Fatal(err)
	}
	db := f.Store.Options.(*databaseOptions)
	if f.Store.Type != "db" || db.Database != "shop" || f.Queue.Retain != "all" || f.Queue.CompletedRetention != config.Duration(48*time.Hour) {
		t.Errorf("store %+v, queue %+v", db, f.Queue)
	}
	if _, _, err := config.Load([]byte(least), kinds.StoreOnly(), source()); err != nil {
		t.Errorf("a relay's file: %v", err)
	}
	for wrong, want := range map[string]string{
		strings.Replace(text, "database:", "databse:", 1): "2 problems\n  line 2: store.db.databse: unknown key, did you mean \"database\"?\n  line 2: store.db.database: is missing",
		strings.Replace(text, "retain:", "retian:", 1):    "line 3: queue.retian: unknown key, did you mean \"retain\"?",
		text + "rotes: []\n":                              "line 7: rotes: unknown key, did you mean \"routes\"?",
		"queue: {}\n":                                     "line 1: store: is missing",
	} {
		if _, _, err := config.Load([]byte(wrong), kinds.StoreOnly(), source()); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestFileIsNamedInErrors(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "outbox.yaml")
	if _, _, err := config.LoadFile(path, kinds, source()); err == nil || !strings.HasPrefix(err.Error(), "reading the configuration: open "+path) {
		t.Errorf("missing file: %v", err)
	}
	if err := os.WriteFile(path, []byte("a: b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := config.LoadFile(path, kinds, source()); err == nil || !strings.HasPrefix(err.Error(), path+": 4 problems\n  line 1: a: unknown key") {
		t.Errorf("bad file: %v", err)
	}
}

// A printed configuration reads as itself, apart from what is hidden.
func TestPrintedConfigurationIsComplete(t *testing.T) {
	t.Parallel()
	text, err := load(t, least).YAML()
	if err != nil {
		t.Fatal(err)
	}
	want := `store:
  db:
    uri: db://(hidden)@localhost/?x=1
    database: shop
    limit: 1MiB
sinks:
  events:
    type: broker
    brokers: ['127.0.0.1:9092']
    topic: '{{ .Type }}'
    acks: all
    timeout: 10s
routes:
  - name: kafka
    sink: events
    start: beginning
    include_published: false
    mark_published: false
    lanes: 5
    batch:
      events: 500
      bytes: 8MiB
    window: 10000
    timeout: 1m
    backoff:
      initial: 1s
      max: 10m
    outage_backoff:
      initial: 1s
      max: 30s
    on_failure: skip
    max_attempts: 10
    max_parked: 1000
queue:
  completed_retention: 1d
  failed_retention: 7d
  retain: failed
  max_redeliveries: 5
relay:
  drain: 30s
  cursor_lease: 15s
  retention: 7d
  clean_interval: 5m
admin:
  allow_remote: false
  ready_lag: 5m
log:
  level: info
  format: text
`
	if string(text) != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
	again, err := load(t, string(text)).YAML()
	if err != nil || string(again) != want {
		t.Errorf("read again: %v\n%s", err, again)
	}
}

// What only speaks to the store still knows which sinks there are.
func TestSinkNamesAreReadWithTheStoreAlone(t *testing.T) {
	t.Parallel()
	text := "store:\n  mongodb: {uri: \"mongodb://h/\", database: d}\nsinks:\n  mail: {type: none, x: \"${NOT_SET}\"}\n  events: [1]\n"
	kinds := config.Kinds{Stores: map[string]func() any{"mongodb": func() any {
		return &struct {
			URI      string `yaml:"uri"`
			Database string `yaml:"database"`
		}{}
	}}}
	file, _, err := config.Load([]byte(text), kinds.StoreOnly(), config.Source{})
	if err != nil || !slices.Equal(file.SinkNames(), []string{"events", "mail"}) {
		t.Errorf("%v, %v", file, err)
	}
}
