package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheSQLiteBenchMeasures(t *testing.T) {
	m := measured(t, "sqlite", "--json", "--events", "2000", "--jobs", "1000", "--runs", "1")
	for _, name := range []string{
		"events_per_s", "alone_events_per_s", "of_alone", "jobs_per_s", "alone_jobs_per_s", "jobs_of_alone", "plain_jobs_per_s",
	} {
		require.Positive(t, m[name], name)
	}
}
