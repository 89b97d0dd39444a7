package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/gooutbox/outbox/internal/config"
)

func TestLogsShowDurationsAsPeopleReadThem(t *testing.T) {
	t.Parallel()
	for format, want := range map[string]string{"json": `"retry_in":"1.02s"`, "text": "retry_in=1.02s"} {
		var out bytes.Buffer
		newLogger(&out, config.Log{Level: "info", Format: format}, config.Redactor{}).Info("x", "retry_in", 1021690780*time.Nanosecond)
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s: no %s in %s", format, want, out.String())
		}
	}
}
