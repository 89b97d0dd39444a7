package main

import (
	"strings"
	"testing"

	"github.com/gooutbox/outbox/internal/config"
	amqpsink "github.com/gooutbox/outbox/sink/amqp"
)

const withAMQP = `store:
  mongodb: {uri: "mongodb://127.0.0.1:1/", database: shop}
sinks:
  events:
    type: amqp
    urls: "${AMQP_URLS}"
    exchange: shop.{{ .Aggregate }}
    routing_key: "{{ .Type }}"
    form: bare
    source: /shop
    persistent: false
    connection_name: shop
    heartbeat: 5s
    timeout: 3s
    max_message_bytes: 1MiB
    tls: {server_name: rabbit}
    topology:
      exchanges:
        - {name: shop.order, type: direct, arguments: {alternate-exchange: other}}
      queues:
        - {name: orders, arguments: {x-max-length: 1000, x-overflow: reject-publish, x-single-active-consumer: true}}
      bindings:
        - {exchange: shop.order, queue: orders, routing_key: order.placed}
        - {exchange: shop.order, to_exchange: other}
routes:
  - {name: amqp, sink: events}
`

func TestAMQPConfigurationIsPrintedWithoutSecrets(t *testing.T) {
	t.Setenv("AMQP_URLS", "amqps://relay:c4n4ry-one@one:5671/shop, amqps://relay:c4n4ry-two@two/shop")
	status, stdout, stderr := outbox(t, "config", "-c", configFile(t, withAMQP))
	if status != exitOK || stderr != "" {
		t.Errorf("status %d, stderr %q", status, stderr)
	}
	if strings.Contains(stdout, "c4n4ry") {
		t.Error("a secret is printed")
	}
	golden(t, "config-amqp.yaml", stdout)
}

func TestAMQPOptionsMakeTheSink(t *testing.T) {
	t.Parallel()
	o := newAMQPOptions()
	o.URLs = []config.URI{"amqp://a/v", "amqp://b/v"}
	o.Topology.Queues = []amqpQueue{{Name: "q", Arguments: map[string]amqpArgument{"n": "10", "b": "true", "s": "quorum"}}}
	cfg := o.sink()
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	got := cfg.Topology.Queues[0].Arguments
	if got["n"] != int64(10) || got["b"] != true || got["s"] != "quorum" || len(cfg.URLs) != 2 || cfg.Transient || cfg.Form != amqpsink.CloudEvents {
		t.Errorf("%+v", got)
	}
}

func TestAMQPProblemsAreNamedWithTheirPlaces(t *testing.T) {
	t.Parallel()
	status, _, stderr := outbox(t, "config", "-c", configFile(t, `store:
  mongodb: {uri: "mongodb://127.0.0.1:1/", database: shop}
sinks:
  one:
    type: amqp
    urls: ["http://c4n4ry@a", "amqp://u:c4n4ry@b/v?heartbeat=1"]
    exchange: "{{ .Nothing }}"
    routing_key: "{{"
    external: true
    heartbeat: 1500ms
    tls: {}
    topology: {bindings: [{exchange: x}]}
  two:
    type: amqp
    urls: ["amqp://u:c4n@4ry@b/v"]
routes:
  - {name: amqp, sink: one}
`))
	if status != exitUsage {
		t.Errorf("status %d", status)
	}
	for _, want := range []string{
		"sinks.one.urls[0]: must begin with amqp://", "sinks.one.urls[1]: has parameters", "sinks.one.exchange: makes no exchange of a sample event: there is no .Nothing; a template may use .Type, ",
		"sinks.one.routing_key: is no template", "sinks.one.heartbeat: is 1.5s",
		"sinks.one.tls: needs an address that begins with amqps://", "sinks.one.topology: has a binding",
		"sinks.two.urls[0]: holds a character",
	} {
		if !strings.Contains(stderr, want) {
			t.Errorf("%q is missing in\n%s", want, stderr)
		}
	}
	if strings.Contains(stderr, "c4n") {
		t.Errorf("a secret is printed:\n%s", stderr)
	}
}
