package sqlite

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// metrics are the store's instruments. Each has the attribute outbox.log.
type metrics struct {
	log metric.MeasurementOption

	appended, acquired, cleaned, enqueued, jobsCleaned metric.Int64Counter
}

func newMetrics(provider metric.MeterProvider, log string) (metrics, error) {
	meter := provider.Meter("github.com/gooutbox/outbox/store/sqlite")
	m := metrics{log: metric.WithAttributes(attribute.String("outbox.log", log))}
	for _, c := range []struct {
		counter    *metric.Int64Counter
		name, text string
	}{
		{&m.appended, "outbox.log.appended", "Events handed to the database by Append, committed or not."},
		{&m.acquired, "outbox.cursor.acquired", "Times a cursor was acquired."},
		{&m.cleaned, "outbox.log.cleaned", "Events removed after their retention."},
		{&m.enqueued, "outbox.jobs.enqueued", "Jobs handed to the database by Enqueue, committed or not, without duplicates."},
		{&m.jobsCleaned, "outbox.jobs.cleaned", "Failed jobs removed after their retention."},
	} {
		counter, err := meter.Int64Counter(c.name, metric.WithDescription(c.text))
		if err != nil {
			return m, fmt.Errorf("creating the metric %s: %w", c.name, err)
		}
		*c.counter = counter
	}
	return m, nil
}

func (m metrics) count(ctx context.Context, c metric.Int64Counter, n int64) { c.Add(ctx, n, m.log) }
