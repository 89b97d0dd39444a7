package main

import (
	"strings"
	"testing"

	"github.com/gooutbox/outbox/internal/servicetest"
)

func TestExample(t *testing.T) {
	servicetest.MongoURL(t)
	servicetest.AWSEndpoint(t)
	t.Setenv("AWS_REGION", "eu-west-1")
	t.Setenv("AWS_ACCESS_KEY_ID", "test")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "test")
	var out strings.Builder
	if err := run(t.Context(), &out); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	if !strings.HasSuffix(out.String(), "\ninvoices=10 events=10\n") {
		t.Errorf("it wrote\n%s", &out)
	}
}
