package archtest

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/gooutbox/outbox"

// Families of packages, by how their import paths begin.
var (
	mongoDriver = []string{"go.mongodb.org/"}
	kafkaClient = []string{"github.com/segmentio/kafka-go", "github.com/twmb/franz-go"}
	aws         = []string{"github.com/aws/"}
	rabbitMQ    = []string{"github.com/rabbitmq/"}
	telemetry   = []string{"go.opentelemetry.io/otel/sdk", "go.opentelemetry.io/otel/exporters", "github.com/prometheus/"}
	program     = []string{"github.com/spf13/", "go.yaml.in/", "github.com/goccy/go-yaml", module + "/internal/config", module + "/cmd/"}
	tests       = []string{"testing", "github.com/stretchr/testify", "go.uber.org/goleak", module + "/internal/services", module + "/internal/servicetest", module + "/internal/trial"}
	embedded    = []string{"modernc.org/", module + "/store/sqlite"}
	fakeKafka   = []string{"github.com/twmb/franz-go"}
	stores      = []string{module + "/store/"}
	sinks       = []string{module + "/sink/"}
)

// rule names families that a package must never link.
type rule struct {
	pkg   string
	never [][]string
}

// rules names, for each package that programs import, what it must never link.
var rules = []rule{
	{"core", [][]string{stores, sinks, tests, {module + "/internal/", module + "/relay"}}},
	{"relay", [][]string{mongoDriver, kafkaClient, aws, rabbitMQ, telemetry, program, tests, stores, sinks}},
	{"store/mongo", [][]string{kafkaClient, aws, rabbitMQ, telemetry, program, tests, sinks, {module + "/store/memory", module + "/relay"}}},
	{"store/memory", [][]string{mongoDriver, kafkaClient, aws, rabbitMQ, telemetry, program, tests, sinks, {module + "/store/mongo", module + "/relay"}}},
	{"store/sqlite", [][]string{mongoDriver, kafkaClient, aws, rabbitMQ, telemetry, program, tests, sinks, {module + "/store/mongo", module + "/store/memory", module + "/relay"}}},
	{"sink/kafka", [][]string{mongoDriver, aws, rabbitMQ, telemetry, program, tests, stores, {module + "/relay", "github.com/twmb/franz-go"}}},
	{"sink/amqp", [][]string{mongoDriver, kafkaClient, aws, telemetry, program, tests, stores, {module + "/relay", module + "/sink/kafka", module + "/sink/sqs"}}},
	{"sink/sqs", [][]string{mongoDriver, kafkaClient, rabbitMQ, telemetry, program, tests, stores, {module + "/relay", module + "/sink/kafka", module + "/sink/amqp"}}},
	{"sink/mail", [][]string{mongoDriver, kafkaClient, aws, rabbitMQ, telemetry, program, tests, stores, {module + "/relay", module + "/sink/"}}},
	{"sink/mail/ses", [][]string{mongoDriver, kafkaClient, rabbitMQ, telemetry, program, tests, stores, {module + "/relay", module + "/sink/sqs", module + "/sink/mail/"}}},
	{"sink/mail/memory", [][]string{mongoDriver, kafkaClient, aws, rabbitMQ, telemetry, program, tests, stores, {module + "/relay", module + "/sink/mail/"}}},
	{"sink/mail/mailtest", [][]string{mongoDriver, kafkaClient, aws, rabbitMQ, telemetry, stores, {module + "/relay", module + "/sink/mail/"}}},
	{"store/mongo/mailstore", [][]string{kafkaClient, aws, rabbitMQ, telemetry, program, tests, {module + "/relay", module + "/store/", module + "/sink/kafka", module + "/sink/mail/"}}},
	{"codec/aesgcm", [][]string{mongoDriver, kafkaClient, aws, rabbitMQ, telemetry, program, tests, stores, sinks, {module + "/relay", module + "/internal/"}}},
	{"sink/mail/smtp", [][]string{mongoDriver, kafkaClient, aws, rabbitMQ, telemetry, program, tests, stores, {module + "/relay", module + "/sink/mail/folder", module + "/sink/mail/internal"}}},
	{"sink/mail/folder", [][]string{mongoDriver, kafkaClient, aws, rabbitMQ, telemetry, program, tests, stores, {module + "/relay", module + "/sink/mail/smtp", module + "/sink/mail/internal"}}},
	{"store/storetest", [][]string{mongoDriver, kafkaClient, aws, rabbitMQ, telemetry, program, sinks, {module + "/store/mongo"}}},
	{"sink/sinktest", [][]string{mongoDriver, kafkaClient, aws, rabbitMQ, telemetry, program, stores, {module + "/sink/kafka", module + "/sink/amqp", module + "/sink/sqs"}}},
	{"outboxtest", [][]string{mongoDriver, kafkaClient, aws, rabbitMQ, telemetry, program, tests, sinks, {module + "/store/mongo"}}},
	{"consumer", [][]string{mongoDriver, kafkaClient, aws, rabbitMQ, telemetry, program, tests, stores, sinks, {module + "/relay", module + "/consumer/"}}},
	{"consumer/kafka", [][]string{mongoDriver, aws, rabbitMQ, telemetry, program, tests, stores, sinks, {module + "/relay", module + "/consumer/", "github.com/twmb/franz-go"}}},
	{"consumer/amqp", [][]string{mongoDriver, kafkaClient, aws, telemetry, program, tests, stores, sinks, {module + "/relay", module + "/consumer/"}}},
	{"consumer/sqs", [][]string{mongoDriver, kafkaClient, rabbitMQ, telemetry, program, tests, stores, sinks, {module + "/relay", module + "/consumer/"}}},
	{"consumer/dedupe", [][]string{mongoDriver, kafkaClient, aws, rabbitMQ, telemetry, program, tests, stores, sinks, {module + "/relay", module + "/consumer/"}}},
	{"consumer/dedupe/mongo", [][]string{kafkaClient, aws, rabbitMQ, telemetry, program, tests, stores, sinks, {module + "/relay", module + "/consumer/dedupe/memory"}}},
	{"consumer/dedupe/memory", [][]string{mongoDriver, kafkaClient, aws, rabbitMQ, telemetry, program, tests, stores, sinks, {module + "/relay", module + "/consumer/dedupe/mongo"}}},
	{"consumer/dedupe/dedupetest", [][]string{mongoDriver, kafkaClient, aws, rabbitMQ, telemetry, program, stores, sinks, {module + "/relay", module + "/consumer/dedupe/mongo"}}},
	{"cmd/outbox", [][]string{tests, {"github.com/twmb/franz-go"}}},
}

// TestDependenciesPointInwards looks at all that a program links when it
// imports one of the library's packages.
func TestDependenciesPointInwards(t *testing.T) {
	t.Parallel()
	for _, rule := range rules {
		t.Run(strings.ReplaceAll(rule.pkg, "/", "_"), func(t *testing.T) {
			t.Parallel()
			linked := deps(t, "./"+rule.pkg)
			for _, family := range rule.never {
				for _, path := range linked {
					if of(family, path) {
						t.Errorf("%s links %s", rule.pkg, path)
					}
				}
			}
		})
	}
}

// TestTheFirstRunCostsNobodyElseAnything: SQLite comes only with its own store, a
// broker inside the process with none of the library's packages.
func TestTheFirstRunCostsNobodyElseAnything(t *testing.T) {
	t.Parallel()
	for _, rule := range rules {
		t.Run(strings.ReplaceAll(rule.pkg, "/", "_"), func(t *testing.T) {
			t.Parallel()
			if rule.pkg == "cmd/outbox" {
				return // a program of its own, which wires everything
			}
			for _, path := range deps(t, "./"+rule.pkg) {
				if of(fakeKafka, path) || rule.pkg != "store/sqlite" && of(embedded, path) {
					t.Errorf("%s links %s", rule.pkg, path)
				}
			}
		})
	}
}

// TestEachPackageHasItsRule fails for a store or sink that was added without
// one.
func TestEachPackageHasItsRule(t *testing.T) {
	t.Parallel()
	for _, path := range goList(t, "./core/...", "./relay/...", "./store/...", "./sink/...", "./consumer/...", "./codec/...", "./outboxtest/...", "./cmd/...") {
		pkg := strings.TrimPrefix(path, module+"/")
		if strings.Contains(pkg, "/internal/") {
			continue
		}
		if !slices.ContainsFunc(rules, func(rule rule) bool { return rule.pkg == pkg }) {
			t.Errorf("%s: say in rules what it must never link", pkg)
		}
	}
}

// TestFamiliesAreSpelledRight finds each family that is in use where it
// belongs, so that a rule about it can fail.
func TestFamiliesAreSpelledRight(t *testing.T) {
	t.Parallel()
	for _, use := range []struct {
		pkg    string
		family []string
	}{
		{"store/mongo", mongoDriver},
		{"store/sqlite", embedded},
		{"sink/kafka", kafkaClient},
		{"sink/sqs", aws},
		{"sink/amqp", rabbitMQ},
		{"cmd/outbox", telemetry},
		{"cmd/outbox", program},
		{"cmd/outbox", stores},
		{"cmd/outbox", sinks},
		{"store/storetest", tests},
	} {
		if !slices.ContainsFunc(deps(t, "./"+use.pkg), func(path string) bool { return of(use.family, path) }) {
			t.Errorf("%s links nothing of %v", use.pkg, use.family)
		}
	}
}

func TestCoreNeedsTheStandardLibraryOnly(t *testing.T) {
	t.Parallel()
	for _, path := range goList(t, "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", "./core") {
		if path != module+"/core" {
			t.Errorf("core links %s", path)
		}
	}
}

// of tells whether a package belongs to a family.
func of(family []string, path string) bool {
	return slices.ContainsFunc(family, func(start string) bool { return begins(path, start) })
}

// begins tells whether a path is start, or lies below it; or lies below a
// start that ends in a slash.
func begins(path, start string) bool {
	if strings.HasSuffix(start, "/") {
		return strings.HasPrefix(path, start)
	}
	return path == start || strings.HasPrefix(path, start+"/")
}

// deps returns every package that a package links, and itself.
func deps(t *testing.T, pkg string) []string {
	t.Helper()
	found := goList(t, "-deps", pkg)
	self := module + strings.TrimPrefix(pkg, ".")
	if !slices.Contains(found, self) {
		t.Fatalf("%s is not among what it links", self)
	}
	return slices.DeleteFunc(found, func(path string) bool { return path == self })
}

// goList runs `go list` at the root of the module.
func goList(t *testing.T, args ...string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list"}, args...)...)
	cmd.Dir = root
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %s: %v: %s", strings.Join(args, " "), err, complaint.String())
	}
	return strings.Fields(string(out))
}
