package main

import (
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/gooutbox/outbox/internal/config"
)

func TestAdminListener(t *testing.T) {
	t.Parallel()
	logger := slog.New(slog.DiscardHandler)
	meters, page, err := newMetrics(logger)
	if err != nil {
		t.Fatal(err)
	}
	counter, err := meters.Meter("test").Int64Counter("outbox.delivered")
	if err != nil {
		t.Fatal(err)
	}
	counter.Add(t.Context(), 7)
	now := verdict{Ready: true, Verdict: verdictOK}
	a, err := listenAdmin("127.0.0.1:0", page, func() verdict { return now }, config.NewRedactor([]string{"c4n4ry"}), logger)
	if err != nil {
		t.Fatal(err)
	}
	defer a.close()
	base := "http://" + a.address()

	if status, body := get(t, base+"/healthz"); status != http.StatusOK || body != `{"status":"ok"}`+"\n" {
		t.Errorf("/healthz: %d %s", status, body)
	}
	if status, body := get(t, base+"/readyz"); status != http.StatusOK || body != `{"ready":true,"verdict":"ok","reasons":[]}`+"\n" {
		t.Errorf("/readyz: %d %s", status, body)
	}
	now = verdict{Verdict: verdictSinkDown, Reasons: []string{"route a: wrong password c4n4ry"}}
	if status, body := get(t, base+"/readyz"); status != http.StatusServiceUnavailable || body != `{"ready":false,"verdict":"sink-down","reasons":["route a: wrong password (hidden)"]}`+"\n" {
		t.Errorf("/readyz: %d %s", status, body)
	}
	status, body := get(t, base+"/metrics")
	for _, want := range []string{"outbox_delivered_total 7", "go_goroutines ", "go_memstats_heap_alloc_bytes ", "process_"} {
		if status != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("/metrics: %d, no %q in\n%s", status, want, body)
		}
	}
	if status, _ := get(t, base+"/debug/pprof/"); status != http.StatusNotFound {
		t.Errorf("an unknown page: %d", status)
	}
	if _, err := listenAdmin(a.address(), page, nil, config.Redactor{}, logger); err == nil || !strings.HasPrefix(err.Error(), "opening the admin listener: ") || !strings.Contains(err.Error(), "admin.listen") {
		t.Errorf("the same address twice: %v", err)
	}
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer closeIt(response.Body)
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}
