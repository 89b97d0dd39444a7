package main

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
	mongostore "github.com/gooutbox/outbox/store/mongo"
)

// operated is an outbox with what operators ask about.
type operated struct {
	*mongostore.Store
	t      *testing.T
	db     *mongo.Database
	config string
}

// newOperated makes one in a database of its own. Its configuration is that of
// a relay whose secrets aren't there: commands that only need the store do
// without.
func newOperated(t *testing.T) *operated {
	t.Helper()
	db := servicetest.Database(t)
	s, err := mongostore.New(db, mongostore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.EnsureIndexes(t.Context()); err != nil {
		t.Fatal(err)
	}
	config := configFile(t, fmt.Sprintf(`store:
  mongodb: {uri: %q, database: %q}
sinks:
  events: {type: kafka, brokers: ["${BROKERS_THAT_ARE_NOT_SET}"]}
routes:
  - {name: kafka, sink: events}
`, servicetest.MongoURL(t), db.Name()))
	return &operated{s, t, db, config}
}

// enqueue commits jobs whose events have the names as ids, and returns the ids
// of the jobs.
func (o *operated) enqueue(jobs ...core.Job) []string {
	o.t.Helper()
	var ids []string
	err := o.InTransaction(o.t.Context(), func(ctx context.Context) error {
		receipts, err := o.Enqueue(ctx, jobs...)
		ids = nil
		for _, r := range receipts {
			ids = append(ids, r.ID)
		}
		return err
	})
	if err != nil {
		o.t.Fatal(err)
	}
	return ids
}

// mail is a job whose event has this id, of tenant acme.
func mail(id string) core.Job {
	return core.Job{Sink: "mail", Event: core.Event{
		ID: id, Aggregate: "order", AggregateID: "order-" + id, Type: "mail.wanted", Tenant: "acme", Payload: []byte("hello"),
	}}
}

// settle claims all due mails and settles them alike.
func (o *operated) settle(one core.Settlement) {
	o.t.Helper()
	var all []core.Settlement
	for _, job := range o.claim() {
		one.Job = job
		all = append(all, one)
	}
	if lost, err := o.Settle(o.t.Context(), all); err != nil || len(lost) > 0 || len(all) == 0 {
		o.t.Fatal(len(all), lost, err)
	}
}

func (o *operated) claim() []*core.Claimed {
	o.t.Helper()
	claimed, err := o.Claim(o.t.Context(), core.ClaimRequest{Sink: "mail", Max: 100, Owner: "host-1/worker"})
	if err != nil {
		o.t.Fatal(err)
	}
	return claimed
}

// append commits events.
func (o *operated) append(events ...core.Event) {
	o.t.Helper()
	err := o.InTransaction(o.t.Context(), func(ctx context.Context) error { return o.Append(ctx, events...) })
	if err != nil {
		o.t.Fatal(err)
	}
}

// acquire holds the cursor kafka.
func (o *operated) acquire() core.Cursor {
	o.t.Helper()
	c, err := o.Acquire(o.t.Context(), core.AcquireRequest{Name: "kafka", Owner: "host-1/relay", Lease: time.Minute})
	if err != nil {
		o.t.Fatal(err)
	}
	return c
}

// read reads as many events.
func (o *operated) read(c core.Cursor, n int) []core.Entry {
	o.t.Helper()
	var entries []core.Entry
	for len(entries) < n {
		batch, err := c.Read(o.t.Context(), core.ReadLimit{})
		if err != nil {
			o.t.Fatal(err)
		}
		entries = append(entries, batch.Entries...)
	}
	return entries
}

// transcript runs commands and gathers what people would see.
type transcript struct {
	o     *operated
	text  strings.Builder
	names map[string]string
}

// run executes a command on the outbox, with --json or without.
func (tr *transcript) run(args ...string) {
	tr.o.t.Helper()
	status, stdout, stderr := outbox(tr.o.t, append(args, "-c", tr.o.config)...)
	fmt.Fprintf(&tr.text, "$ outbox %s\n%s%s(%d)\n\n", strings.Join(args, " "), stdout, stderr, status)
}

var (
	someClock   = regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC`)
	someTime    = regexp.MustCompile(`"\d{4}-\d\d-\d\dT[0-9:.]+Z"`)
	someUUID    = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	someSeconds = regexp.MustCompile(`_seconds": [0-9.e-]+`)
	someAge     = regexp.MustCompile(`oldest \d+s old`)
	someAfter   = regexp.MustCompile(`(--after |"next": ")[A-Za-z0-9_-]{20,}`)
)

// golden compares with a file what was gathered, with placeholders of the same
// length for what differs each time.
func (tr *transcript) golden(name string) {
	tr.o.t.Helper()
	text := strings.ReplaceAll(tr.text.String(), tr.o.config, "outbox.yaml")
	text = someClock.ReplaceAllString(text, "2026-01-31 08:00:00 UTC")
	text = someTime.ReplaceAllString(text, `"2026-01-31T08:00:00Z"`)
	text = someSeconds.ReplaceAllString(text, `_seconds": 1.5`)
	text = someAge.ReplaceAllString(text, "oldest 1s old")
	text = someAfter.ReplaceAllString(text, "${1}PLACE")
	tr.names = map[string]string{}
	text = someUUID.ReplaceAllStringFunc(text, func(id string) string {
		if tr.names[id] == "" {
			tr.names[id] = fmt.Sprintf("00000000-0000-0000-0000-%012d", len(tr.names)+1)
		}
		return tr.names[id]
	})
	golden(tr.o.t, name, text)
}

// script decodes what a command prints for scripts.
func (o *operated) script(into any, args ...string) {
	o.t.Helper()
	status, stdout, stderr := outbox(o.t, append(args, "--json", "-c", o.config)...)
	if err := json.Unmarshal([]byte(stdout), into); err != nil || status != exitOK || stderr != "" {
		o.t.Fatalf("%q: status %d, %v, %s%s", args, status, err, stdout, stderr)
	}
}
