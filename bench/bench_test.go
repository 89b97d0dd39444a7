package main

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gooutbox/outbox/internal/servicetest"
)

// TestMain lets the test binary play the children that a bench starts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && strings.HasSuffix(os.Args[1], "-child") {
		main()
		return
	}
	os.Exit(m.Run())
}

// measured runs a bench and decodes the one JSON object that it prints.
func measured(t *testing.T, args ...string) map[string]any {
	t.Helper()
	servicetest.MongoURL(t)
	servicetest.Kafka(t)
	read, write, err := os.Pipe()
	require.NoError(t, err)
	stdout := os.Stdout
	os.Stdout = write
	failed := run(context.Background(), args)
	os.Stdout = stdout
	require.NoError(t, write.Close())
	out, err := io.ReadAll(read)
	require.NoError(t, err)
	require.NoError(t, failed)
	var object map[string]any
	require.NoError(t, json.Unmarshal(out, &object), "%s", out)
	return object
}

func TestTheLogBenchMeasures(t *testing.T) {
	m := measured(t, "log", "--json", "--events", "3000", "--runs", "1", "--routes", "1,2")
	for _, name := range []string{"events_per_s", "stream_events_per_s", "of_reading_alone", "commands_per_event", "rss_mb", "cpu_s"} {
		require.Positive(t, m[name], name)
	}
	require.Len(t, m["rows"], 2)
}

func TestTheLatencyBenchMeasures(t *testing.T) {
	m := measured(t, "latency", "--json", "--for", "1s", "--warmup", "200ms", "--rate", "50")
	for _, name := range []string{"p50_ms", "p95_ms", "p99_ms"} {
		require.Positive(t, m[name], name)
	}
	require.EqualValues(t, 50, m["events"])
}

func TestTheQueueBenchMeasures(t *testing.T) {
	m := measured(t, "queue", "--json", "--jobs", "300", "--plain-jobs", "50", "--runs", "1", "--workers", "1x1,2x3")
	rows := m["rows"].([]any)
	require.Len(t, rows, 4)
	for i, wake := range []string{"poll", "poll", "stream", "stream"} {
		row := rows[i].(map[string]any)
		require.Equal(t, wake, row["wake"])
		require.EqualValues(t, 1+i%2, row["workers"])
		require.EqualValues(t, 1+2*(i%2), row["lanes"])
		for _, name := range []string{"jobs_per_s", "plain_jobs_per_s", "of_plain", "round_trips_per_job"} {
			require.Positive(t, row[name], name)
		}
		require.InDelta(t, 2, row["plain_round_trips_per_job"], 0.2)
	}
}

func TestTheSinksBenchMeasures(t *testing.T) {
	servicetest.AMQPURL(t)
	m := measured(t, "sinks", "--json", "--events", "300", "--runs", "1", "--sinks", "kafka,amqp-classic,amqp-quorum")
	rows := m["rows"].([]any)
	require.Len(t, rows, 3)
	for _, of := range rows {
		row := of.(map[string]any)
		for _, name := range []string{"events_per_s", "direct_events_per_s", "of_direct"} {
			require.Positive(t, row[name], "%s of %s", name, row["sink"])
		}
	}
}

func TestTheQueueBenchMeasuresTenants(t *testing.T) {
	m := measured(t, "queue", "--json", "--tenants", "--jobs", "500", "--runs", "1")
	require.Len(t, m["tenants"], 9)
	for _, name := range []string{"p99_ms", "alone_p99_ms", "of_alone"} {
		require.Positive(t, m[name], name)
	}
}

func TestABenchNamesWhatItNeeds(t *testing.T) {
	t.Setenv("MONGODB_URL", "")
	require.ErrorContains(t, run(t.Context(), []string{"log"}), "MONGODB_URL")
	require.ErrorContains(t, run(t.Context(), nil), "log, latency, queue, sinks or sqlite")
}
