package main

import (
	"strings"
	"testing"

	"github.com/gooutbox/outbox/internal/servicetest"
)

func TestExample(t *testing.T) {
	t.Parallel()
	servicetest.MongoURL(t)
	servicetest.AMQPURL(t)
	var out strings.Builder
	if err := run(t.Context(), &out); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	if !strings.HasSuffix(out.String(), "\ninvoices=10 events=10\n") {
		t.Errorf("it wrote\n%s", &out)
	}
}
