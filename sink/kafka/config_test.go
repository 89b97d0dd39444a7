package kafka

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gooutbox/outbox/core"
)

func TestConfigReportsEveryProblemAtOnce(t *testing.T) {
	t.Parallel()
	_, err := New(Config{
		Brokers:         []string{"kafka"},
		Topic:           "{{ .Payload }}",
		Acks:            "none",
		Compression:     "brotli",
		SASL:            &SASL{Mechanism: "gssapi", Username: "u", Password: "p"},
		RequestTimeout:  1,
		MaxMessageBytes: -1,
		ClientID:        "a\nb",
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, field := range []string{"Brokers", "Topic", "Acks", "Compression", "SASL", "RequestTimeout", "MaxMessageBytes", "ClientID"} {
		if !strings.Contains(err.Error(), field+" ") {
			t.Errorf("the error doesn't name %s:\n%v", field, err)
		}
	}
	if _, err := New(Config{Form: "avro"}); err == nil || !strings.Contains(err.Error(), "Form ") || !strings.Contains(err.Error(), "Brokers ") {
		t.Errorf("an unknown form and no broker: %v", err)
	}
}

func TestConfigNeedsNothingButBrokers(t *testing.T) {
	t.Parallel()
	for _, form := range []Form{"", CloudEvents, Debezium, Bare} {
		if err := (Config{Brokers: []string{"localhost:9092"}, Form: form}).Validate(); err != nil {
			t.Errorf("form %q: %v", form, err)
		}
	}
}

func TestPasswordIsNeverPrinted(t *testing.T) {
	t.Parallel()
	c := Config{Brokers: []string{"b:1"}, SASL: &SASL{ScramSHA256, "relay", "hunter2"}}
	for _, format := range []string{"%v", "%+v", "%s", "%#v"} {
		if text := fmt.Sprintf(format, *c.SASL); strings.Contains(text, "hunter2") || !strings.Contains(text, "relay") {
			t.Errorf("%s prints %s", format, text)
		}
	}
	c.SASL.Password = "hunter2\x00"
	if err := c.Validate(); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a password that SCRAM can't carry: %v", err)
	}
}

func TestTopicComesFromTheTemplate(t *testing.T) {
	t.Parallel()
	event := core.Lease{Route: "main", Event: core.Event{Type: "order.placed", Aggregate: "order", Tenant: "acme", Version: 2}}
	long := event
	long.Event.Type = strings.Repeat("x", 250)
	spaced := event
	spaced.Event.Type = "order placed"
	bare := core.Lease{Event: core.Event{Type: "order.placed"}}
	for _, c := range []struct {
		name, template string
		lease          core.Lease
		topic, field   string
	}{
		{"type", DefaultTopic, event, "order.placed", ""},
		{"debezium", DefaultDebeziumTopic, event, "outbox.event.order", ""},
		{"all fields", "{{ .Tenant }}-{{ .Aggregate }}.{{ .Type }}_v{{ .Version }}.{{ .Route }}", event, "acme-order.order.placed_v2.main", ""},
		{"condition", "{{ if .Tenant }}{{ .Tenant }}.{{ end }}{{ .Type }}", bare, "order.placed", ""},
		{"required", DefaultDebeziumTopic, bare, "", "Aggregate"},
		{"a space", DefaultTopic, spaced, "", "Type"},
		{"too long", DefaultTopic, long, "", "Type"},
		{"empty", "{{ .Tenant }}", bare, "", "Tenant"},
		{"dots alone", "{{ .Tenant }}..", bare, "", "Tenant"},
		{"fixed", "events", bare, "events", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			topics, err := newTopics(c.template)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // made, then remembered
				topic, err := topics.Of(&c.lease)
				field, bad := errors.AsType[*core.FieldError](err)
				if topic != c.topic || bad != (c.field != "") || bad && field.Field != c.field {
					t.Errorf("topic %q, error %v; want %q, an error about %q", topic, err, c.topic, c.field)
				}
			}
		})
	}
}

func TestEventWithoutTopicFailsAlone(t *testing.T) {
	t.Parallel()
	c := fake(t, []string{"order.placed"})
	s := open(t, Config{Brokers: c.ListenAddrs()})
	bad, nameless := lease("1", "a"), lease("", "d")
	bad.Event.Type = "no/topic"
	results := s.Deliver(t.Context(), []core.Lease{bad, lease("2", "b"), lease("3", "a"), nameless})
	want := []core.Outcome{core.Rejected, core.Delivered, core.NotAttempted, core.Rejected}
	for i, r := range results {
		if r.Outcome != want[i] {
			t.Errorf("result %d: %v (%v), want %v", i, r.Outcome, r.Err, want[i])
		}
	}
	if !strings.Contains(results[0].Err.Error(), "Type") {
		t.Errorf("the reason doesn't name the field: %v", results[0].Err)
	}
}
