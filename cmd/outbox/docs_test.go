package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
	mailsink "github.com/gooutbox/outbox/sink/mail"
	"github.com/gooutbox/outbox/store/mongo/mailstore"
)

// shellBlock is a block of commands in a page.
var shellBlock = regexp.MustCompile("(?m)^ *```sh\n((?s:.*?))\n *```")

// commandsOf returns the lines of a page's blocks, without comments.
func commandsOf(t *testing.T, page string) []string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, block := range shellBlock.FindAllSubmatch(text, -1) {
		for line := range strings.Lines(strings.ReplaceAll(string(block[1]), "\\\n", " ")) {
			line, _, _ = strings.Cut(line, " #")
			if line = strings.TrimSpace(line); line != "" {
				lines = append(lines, line)
			}
		}
	}
	return lines
}

func pages(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/adr/*.md", "*/README.md", "examples/*/README.md"} {
		found, err := filepath.Glob(filepath.Join("..", "..", pattern))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, found...)
	}
	if len(all) < 20 {
		t.Fatalf("found only %d pages", len(all))
	}
	return all
}

// TestEachOutboxCommandOfTheDocsRuns gives the commands of each page, in their
// order, to a shell, beside an outbox that holds what they speak of.
func TestEachOutboxCommandOfTheDocsRuns(t *testing.T) {
	t.Parallel()
	ran := 0
	for _, page := range pages(t) {
		lines := slices.DeleteFunc(commandsOf(t, page), func(line string) bool { return !strings.HasPrefix(line, "outbox ") })
		if len(lines) == 0 {
			continue
		}
		ran += len(lines)
		t.Run(strings.TrimPrefix(page, "../../"), func(t *testing.T) {
			t.Parallel()
			s := newShell(t)
			for _, line := range lines {
				s.run(line)
			}
		})
	}
	if ran < 15 {
		t.Errorf("only %d commands were found", ran)
	}
}

// shell is a folder with an outbox.yaml, and a PATH on which outbox is this
// program.
type shell struct {
	*operated
	dir, failed string
	unknown     []string // mails, for each of which there is one decision
}

func newShell(t *testing.T) *shell {
	t.Helper()
	o := newOperated(t)
	s := &shell{operated: o, dir: t.TempDir()}
	program, err := filepath.Abs(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(program, filepath.Join(s.dir, "outbox")); err != nil {
		t.Fatal(err)
	}
	config := `store:
  mongodb: {uri: "${MONGODB_URL}", database: "` + o.db.Name() + `"}
sinks:
  events: {type: kafka, brokers: "${KAFKA_BROKERS}", topic: "` + servicetest.Topic(t, 1) + `"}
routes:
  - {name: kafka, sink: events}
`
	servicetest.Kafka(t)
	if err := os.WriteFile(filepath.Join(s.dir, "outbox.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}

	// What pages speak of: events that a route has given up, two of a type that
	// nobody wants, mails that were refused, and the cursor of a trial.
	o.append(core.Event{AggregateID: "o-1", Type: "order.placed", Payload: []byte("{}")},
		core.Event{AggregateID: "o-2", Type: "order.draft", Payload: []byte("{}")})
	c := o.acquire()
	for _, entry := range o.read(c, 2) {
		if err := c.Park(t.Context(), []core.Parked{{Entry: entry, Sink: "events", Failure: rejected.Failure}}); err != nil {
			t.Fatal(err)
		}
		if entry.Event.Type == "order.placed" {
			s.failed = "kafka/" + entry.Event.ID
		}
	}
	if err := c.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	o.enqueue(mail("1"))
	o.settle(rejected)
	long := bson.D{{Key: "$set", Value: bson.D{{Key: "finished_at", Value: time.Now().Add(-30 * 24 * time.Hour)}}}}
	if _, err := o.db.Collection("outbox_jobs").UpdateMany(t.Context(), bson.D{{Key: "state", Value: "failed"}}, long); err != nil {
		t.Fatal(err)
	}
	s.putMails()
	trial, err := o.Acquire(t.Context(), core.AcquireRequest{Name: "trial", Owner: "host-1/trial", Lease: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if err := trial.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// putMails makes templates, and mails whose workers were not seen again.
func (s *shell) putMails() {
	s.t.Helper()
	for name, text := range map[string]string{
		"ada.json": `{"name": "Ada"}`, "templates/password-reset/sample.json": `{"name": "Bo"}`,
		"templates/password-reset/default/subject.txt": "Reset", "templates/password-reset/default/body.html": "<p>{{.name}}</p>",
	} {
		path := filepath.Join(s.dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o750), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			s.t.Fatal(err)
		}
	}
	ledger, err := mailstore.NewLedger(s.db, mailstore.Config{})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, id := range []string{"mail-1", "mail-2"} {
		_, err := ledger.Reserve(s.t.Context(), mailsink.ReserveRequest{
			JobID: id, Token: "died", For: time.Millisecond, Attempt: 1, Recipients: []string{"ada@example.org"}, Hash: "h",
		})
		if err != nil {
			s.t.Fatal(err)
		}
		s.unknown = append(s.unknown, id)
	}
}

// placeholder is an id that a page has cut short.
var placeholder = regexp.MustCompile(`\S*…`)

// run gives a line to a shell. A relay is stopped after some seconds.
func (s *shell) run(line string) {
	s.t.Helper()
	line = placeholder.ReplaceAllString(line, s.failed)
	if strings.Contains(line, "mail resolve ID ") && len(s.unknown) > 0 {
		line = strings.Replace(line, " ID ", " "+s.unknown[0]+" ", 1)
		s.unknown = s.unknown[1:]
	}
	script := line
	if strings.HasPrefix(line, "outbox relay") {
		script = "timeout --preserve-status --signal=TERM 5 " + line
	}
	cmd := exec.CommandContext(s.t.Context(), "sh", "-c", script)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), asProgram+"=1", "PATH="+s.dir+":"+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Errorf("%s: %v\n%s", line, err, out)
	}
}

// otherCommands are those of the pages that no test of this package runs: where
// they are run, or what is left to the reader.
var otherCommands = []struct {
	begin *regexp.Regexp
	check func(t *testing.T, line string, words []string)
}{
	{regexp.MustCompile(`^export [A-Z_]+=`), nil}, // followed by commands
	{regexp.MustCompile(`^eval "\$\(make -s services`), isTarget},
	{regexp.MustCompile(`^kcat -b "\$KAFKA_BROKERS" -t `), nil}, // a client that is not ours
	{regexp.MustCompile(`^make [a-z-]+`), isTarget},
	{regexp.MustCompile(`^go install \./cmd/outbox$`), nil},                                               // this package
	{regexp.MustCompile(`^go run \./cmd/outbox (check|relay) --config examples/orders/outbox.yaml`), nil}, // examples/orders runs both
	{regexp.MustCompile(`^go run \./(examples|bench|internal)/?\S*`), isTested},
	{regexp.MustCompile(`^go (test|build|generate) `), nil},
}

// isTarget looks for a target in the Makefile, which CI runs by its own name.
func isTarget(t *testing.T, line string, _ []string) {
	t.Helper()
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	target := regexp.MustCompile(`make (?:-s )?([a-z-]+)`).FindStringSubmatch(line)
	if len(target) < 2 || !regexp.MustCompile(`(?m)^`+target[1]+`:`).Match(makefile) {
		t.Errorf("%q: there is no such target", line)
	}
}

// isTested looks for the test of a program, which runs the same function.
func isTested(t *testing.T, line string, words []string) {
	t.Helper()
	for i, word := range words {
		if i < 2 || words[i-1] != "run" || words[i-2] != "go" {
			continue
		}
		folder := strings.TrimSuffix(filepath.Join("..", "..", word), "&")
		if parts := strings.Split(word, "/"); len(parts) > 3 && parts[1] == "examples" {
			folder = filepath.Join("..", "..", parts[1], parts[2]) // a part of the example that is run by its test
		}
		if tests, err := filepath.Glob(filepath.Join(folder, "*_test.go")); err != nil || len(tests) == 0 {
			t.Errorf("%q: %s has no test", line, word)
		}
	}
}

// assignments are the variables before a command.
var assignments = regexp.MustCompile(`^(?:[A-Z_]+=(?:'[^']*'|"[^"]*"|\S*) +)+`)

// TestEachOtherCommandOfTheDocsIsKnown fails for a command that no test runs.
func TestEachOtherCommandOfTheDocsIsKnown(t *testing.T) {
	t.Parallel()
	for _, page := range pages(t) {
		for _, line := range commandsOf(t, page) {
			line = assignments.ReplaceAllString(line, "")
			if strings.HasPrefix(line, "outbox ") {
				continue
			}
			known := false
			for _, c := range otherCommands {
				if c.begin.MatchString(line) {
					known = true
					if c.check != nil {
						c.check(t, line, strings.Fields(line))
					}
					break
				}
			}
			if !known {
				t.Errorf("%s: no test runs %q", page, line)
			}
		}
	}
}
