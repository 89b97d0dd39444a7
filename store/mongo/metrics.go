package mongo

import (
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// metrics are the store's instruments. Each has the attribute outbox.log, those
// of a cursor also outbox.cursor.
type metrics struct {
	appended metric.Int64Counter
	takeover metric.Int64Counter
	cleaned  metric.Int64Counter
	reopened metric.Int64Counter
	recovery metric.Int64Counter

	enqueued    metric.Int64Counter
	jobsCleaned metric.Int64Counter
}

func newMetrics(provider metric.MeterProvider) (metrics, error) {
	meter := provider.Meter("github.com/gooutbox/outbox/store/mongo")
	var m metrics
	for _, c := range []struct {
		counter    *metric.Int64Counter
		name, text string
	}{
		{&m.appended, "outbox.log.appended", "Events handed to the database by Append, committed or not."},
		{&m.takeover, "outbox.cursor.acquired", "Times a cursor was acquired."},
		{&m.cleaned, "outbox.log.cleaned", "Events removed after their retention."},
		{&m.reopened, "outbox.stream.reopened", "Times a change stream was opened again after an error."},
		{&m.recovery, "outbox.cursor.recovered", "Times a cursor scanned the log because its place in the change stream was lost."},
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

// logAttributes name the log in metrics.
func (s *Store) logAttributes() metric.MeasurementOption {
	return metric.WithAttributes(attribute.String("outbox.log", s.log.Name()))
}

// cursorAttributes name a cursor in metrics.
func (s *Store) cursorAttributes(cursor string) metric.MeasurementOption {
	return metric.WithAttributes(attribute.String("outbox.log", s.log.Name()), attribute.String("outbox.cursor", cursor))
}
