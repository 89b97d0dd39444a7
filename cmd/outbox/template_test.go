package main

import (
	"strings"
	"testing"
)

func TestTemplatesNameTheFieldsThatThereAre(t *testing.T) {
	t.Parallel()
	status, _, stderr := outbox(t, "config", "-c", configFile(t, `store: {mongodb: {uri: "mongodb://127.0.0.1:1/", database: shop}}
sinks:
  a: {type: kafka, brokers: ["h:1"], topic: "{{ .Foo }}"}
  b: {type: amqp, urls: ["amqp://h/"], routing_key: "{{ .Foo }}"}
  c: {type: sqs, queue: "{{ .Foo }}"}
routes: [{name: k, sink: a}]
`))
	if status != exitUsage || strings.Count(stderr, "there is no .Foo; a template may use .Type, ") != 3 || strings.Contains(stderr, "topicFields") {
		t.Errorf("status %d, %s", status, stderr)
	}
}
