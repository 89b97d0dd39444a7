package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/gooutbox/outbox/internal/services"
)

func TestPortsAreSeparatedByCommas(t *testing.T) {
	t.Parallel()
	_, err := parseSelection("", "mongodb=1 kafka=2")
	if err == nil || !strings.Contains(err.Error(), "want name=number, separated by commas") {
		t.Errorf("the error is %v", err)
	}
	got, err := parseSelection("", "mongodb=1,kafka=2")
	if err != nil || got.Ports["mongodb"] != 1 || got.Ports["kafka"] != 2 {
		t.Errorf("%v, %v", got.Ports, err)
	}
}

func TestReminderOfVariables(t *testing.T) {
	t.Parallel()
	var hint bytes.Buffer
	shell := map[string]string{"MONGODB_URL": "a"}
	remind(&hint, []services.Variable{{Name: "MONGODB_URL", Value: "a"}, {Name: "KAFKA_BROKERS", Value: "b"}},
		func(name string) string { return shell[name] })
	if want := "services: variables of this shell still point there; run: unset MONGODB_URL\n"; hint.String() != want {
		t.Errorf("got %q, want %q", hint.String(), want)
	}
}
