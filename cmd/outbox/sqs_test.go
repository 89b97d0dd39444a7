package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gooutbox/outbox/core"
)

const withSQS = `store:
  mongodb: {uri: "mongodb://127.0.0.1:1/", database: shop}
sinks:
  events:
    type: sqs
    queue: shop-{{ .Aggregate }}.fifo
    fifo: true
    form: bare
    source: /shop
    binary: reject
    timeout: 3s
    concurrency: 8
    region: eu-west-1
    profile: shop
    endpoint: "${SQS}"
routes:
  - {name: sqs, sink: events}
`

func TestSQSConfigurationIsPrinted(t *testing.T) {
	t.Setenv("SQS", "http://127.0.0.1:4566")
	status, stdout, stderr := outbox(t, "config", "-c", configFile(t, withSQS))
	if status != exitOK || stderr != "" {
		t.Errorf("status %d, stderr %q", status, stderr)
	}
	golden(t, "config-sqs.yaml", stdout)
}

func TestSQSProblemsAreNamedWithTheirPlaces(t *testing.T) {
	t.Parallel()
	status, _, stderr := outbox(t, "config", "-c", configFile(t, `store:
  mongodb: {uri: "mongodb://127.0.0.1:1/", database: shop}
sinks:
  one: {type: sqs, queue: orders, fifo: true, endpoint: "http://me:c4n4ry@aws", concurrency: 0}
  two: {type: sqs, queue: "{{ .Nothing }}", binary: hex}
  three: {type: sqs}
routes:
  - {name: sqs, sink: one}
`))
	if status != exitUsage {
		t.Errorf("status %d", status)
	}
	for _, want := range []string{
		"sinks.one.queue: is no FIFO queue", "sinks.one.endpoint: must be a URL", "sinks.one.concurrency: must be at least 1",
		"sinks.two.queue: makes no queue of a sample event: there is no .Nothing; a template may use .Type, ", "sinks.two.binary: must be one of base64, reject", "sinks.three.queue: is missing",
	} {
		if !strings.Contains(stderr, want) {
			t.Errorf("%q is missing in\n%s", want, stderr)
		}
	}
	if strings.Contains(stderr, "c4n4ry") {
		t.Errorf("a secret is printed:\n%s", stderr)
	}
}

// away hides what the machine's own AWS configuration says.
func away(t *testing.T) {
	t.Helper()
	for _, name := range []string{"AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_SQS"} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_CONFIG_FILE", t.TempDir()+"/none")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", t.TempDir()+"/none")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
}

func TestSQSWithoutARegionIsRefusedAtTheStart(t *testing.T) {
	away(t)
	o := newSQSOptions()
	o.Queue = "orders"
	if _, err := o.open(parts{}); !errors.Is(err, errNoRegion) {
		t.Errorf("%v", err)
	}
}

// Endpoint, region and credentials come from AWS's own variables.
func TestSQSTakesTheStandardAWSConfiguration(t *testing.T) {
	away(t)
	var signed string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		signed = r.Header.Get("Authorization")
		if strings.HasSuffix(r.Header.Get("X-Amz-Target"), "GetQueueUrl") {
			_ = json.NewEncoder(w).Encode(map[string]string{"QueueUrl": "http://sqs/1/orders"})
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"Attributes": map[string]string{"MaximumMessageSize": "1024"}})
	}))
	t.Cleanup(server.Close)
	t.Setenv("AWS_REGION", "ap-south-1")
	t.Setenv("AWS_ACCESS_KEY_ID", "KEYID")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "c4n4ry")
	t.Setenv("AWS_ENDPOINT_URL", server.URL)
	o := newSQSOptions()
	o.Queue = "orders"
	sink, err := o.open(parts{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sink.Close(t.Context()) })
	if err := sink.(core.Checker).Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(signed, "KEYID") || !strings.Contains(signed, "/ap-south-1/sqs/") {
		t.Errorf("signed by %q", signed)
	}
}
