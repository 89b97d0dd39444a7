package main

import (
	"strings"
	"testing"

	"github.com/gooutbox/outbox/internal/servicetest"
)

func TestCheckNamesTheTopicsThatEventsOfTheLogLack(t *testing.T) {
	t.Parallel()
	db, broker, topic := servicetest.Database(t), servicetest.Kafka(t)[0], servicetest.Topic(t, 1)
	check := func(template string) finding {
		t.Helper()
		status, found := checked(t, relayConfigFile(t, servicetest.MongoURL(t), db.Name(), broker, template))
		if status != exitOK {
			t.Errorf("status %d, %+v", status, found)
		}
		return found["topics of events"]
	}
	missing := topic + "-none.{{ .Type }}"
	if f := check(missing); f.Status != statusWarn ||
		!strings.Contains(f.Detail, "can't be checked before the log has events") || !strings.Contains(f.Advice, "on_failure: hold") {
		t.Errorf("of an empty log: %+v", f)
	}
	appendEvents(t, db, 2)
	want := "topic is a template and create_topics is false: the topic " + topic + "-none.order.placed, of an event in the log, doesn't exist"
	if f := check(missing); f.Status != statusWarn || f.Detail != want {
		t.Errorf("got %+v, want %q", f, want)
	}
	if f := check(`{{ if eq .Type "order.placed" }}` + topic + `{{ else }}{{ .Type }}{{ end }}`); f.Status != statusOK {
		t.Errorf("of a topic that is there: %+v", f)
	}
	if f := check(topic); f.Status != "" {
		t.Errorf("of a fixed topic: %+v", f)
	}
}
