package amqp

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestConfigurationProblemsAreToldAtOnce(t *testing.T) {
	t.Parallel()
	err := Config{
		URLs:     []string{"http://u:c4n4ry@h", "amqp://u:c4n4ry@h:99999/v", "amqp://u:c4n%4ry@h", "amqp://u:c4n4ry@h/v?x=1", "amqp://u:c4n4ry@h/a/b"},
		Exchange: "{{ .Nothing }}", RoutingKey: "{{", Form: "debezium", External: true, Heartbeat: time.Millisecond,
		Timeout: time.Millisecond, MaxMessageBytes: -1, ConnectionName: "a\nb",
		Topology: Topology{
			Exchanges: []Exchange{{Name: ""}}, Queues: []Queue{{Name: "q", Arguments: map[string]any{"x": []int{1}}}},
			Bindings: []Binding{{Exchange: "e"}, {Exchange: "e", Queue: "q", ToExchange: "f"}},
		},
	}.Validate()
	for _, want := range []string{
		"URLs entry 1 must begin", "URLs entry 2 has a port", "URLs entry 3 is no address", "URLs entry 4 has parameters", "URLs entry 5 has a virtual host with a slash",
		"Exchange makes no exchange", "RoutingKey is no template", "Form is", "Heartbeat is", "Timeout is", "MaxMessageBytes is",
		"ConnectionName is", "Topology has an exchange whose name is empty", `Topology has a queue "q" whose argument "x"`, "Topology has a binding",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "c4n") {
		t.Errorf("a password stands in\n%v", err)
	}
	if err := (Config{URLs: []string{"amqp://h"}, External: true}).Validate(); err == nil || !strings.Contains(err.Error(), "External needs amqps://") {
		t.Errorf("%v", err)
	}
	if _, err := New(Config{}); err == nil || !strings.Contains(err.Error(), "configuring the AMQP sink: URLs is empty") {
		t.Errorf("%v", err)
	}
}

func TestAddressesAreTakenApart(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]address{
		"amqp://":                       {"localhost", "localhost:5672", false, "/", "guest", "guest"},
		"amqps://u:p%40ss@h/shop":       {"h", "h:5671", true, "shop", "u", "p@ss"},
		"amqp://u:p@127.0.0.1:17/a%2Fb": {"127.0.0.1", "127.0.0.1:17", false, "a/b", "u", "p"},
		"amqp://u:p@h/%2F":              {"h", "h:5672", false, "/", "u", "p"},
	} {
		got, err := parseAddress(url)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", url, got, err, want)
		}
	}
}

func TestNoFormattingShowsAPassword(t *testing.T) {
	t.Parallel()
	cfg := Config{URLs: []string{"amqp://u:c4n4ry@h/v", "no address c4n4ry"}}
	for _, text := range []string{fmt.Sprint(cfg), fmt.Sprintf("%+v", cfg), fmt.Sprintf("%#v", cfg)} {
		if strings.Contains(text, "c4n4ry") || !strings.Contains(text, "h:5672") {
			t.Error(text)
		}
	}
}
