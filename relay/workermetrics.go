package relay

import (
	"context"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/gooutbox/outbox/core"
)

// jobInstruments are those of workers and of the queue.
type jobInstruments struct {
	meter metric.Meter

	jobs, jobsFailed, claims, claimedJobs, leasesLost, takenBack, jobsRemoved metric.Int64Counter
	wait                                                                      metric.Float64Histogram
	attempts                                                                  metric.Int64Histogram

	ahead, jobsInFlight, pauses, byState metric.Int64ObservableGauge
	oldest                               metric.Float64ObservableGauge
}

func newJobInstruments(provider metric.MeterProvider) (*jobInstruments, error) {
	m := provider.Meter(scope)
	is := &jobInstruments{meter: m}
	var first error
	keep := func(err error) {
		if first == nil {
			first = err
		}
	}
	counter := func(to *metric.Int64Counter, name, unit, description string) {
		c, err := m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(description))
		keep(err)
		*to = c
	}
	gauge := func(to *metric.Int64ObservableGauge, name, unit, description string) {
		g, err := m.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(description))
		keep(err)
		*to = g
	}
	counter(&is.jobs, "outbox.relay.jobs", "{job}", "Deliveries of jobs by what the sink answered.")
	counter(&is.jobsFailed, "outbox.relay.jobs.failed", "{job}", "Jobs that were given up, or ended as unknown.")
	counter(&is.claims, "outbox.relay.claims", "{claim}", "Claims of jobs, also those that got none.")
	counter(&is.claimedJobs, "outbox.relay.claims.jobs", "{job}", "Jobs that claims got.")
	counter(&is.leasesLost, "outbox.relay.leases.lost", "{job}", "Leases of jobs that were lost before the job was settled.")
	counter(&is.takenBack, "outbox.relay.leases.taken_back", "{job}", "Jobs whose lease ran out, by what became of them.")
	counter(&is.jobsRemoved, "outbox.relay.jobs.cleaned", "{job}", "Failed jobs that were removed at the end of their retention.")
	gauge(&is.ahead, "outbox.relay.jobs.ahead", "{job}", "Jobs that were claimed and are not begun.")
	gauge(&is.jobsInFlight, "outbox.relay.jobs.in_flight", "{job}", "Jobs that a sink is being called with.")
	gauge(&is.pauses, "outbox.relay.pauses", "{pause}", "Pauses in force, by scope.")
	gauge(&is.byState, "outbox.relay.jobs.stored", "{job}", "Jobs in the queue by sink and state.")
	var err error
	is.oldest, err = m.Float64ObservableGauge("outbox.relay.jobs.oldest", metric.WithUnit("s"),
		metric.WithDescription("For how long the oldest job of a sink that is ready has been due."))
	keep(err)
	is.wait, err = m.Float64Histogram("outbox.relay.jobs.wait", metric.WithUnit("s"),
		metric.WithDescription("How long jobs were due before they were claimed."),
		metric.WithExplicitBucketBoundaries(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800))
	keep(err)
	is.attempts, err = m.Int64Histogram("outbox.relay.jobs.attempts", metric.WithUnit("{attempt}"),
		metric.WithDescription("How many attempts jobs took until they were completed or given up."),
		metric.WithExplicitBucketBoundaries(1, 2, 3, 5, 7, 10, 20, 50))
	keep(err)
	return is, first
}

// workerMetrics are the instruments of one worker.
type workerMetrics struct {
	*jobInstruments
	calls     *instruments // those of calls to sinks
	sink      attribute.KeyValue
	only      metric.MeasurementOption
	byOutcome [core.Unknown + 1]metric.MeasurementOption
	byWait    [3][2]metric.MeasurementOption
}

func (is *jobInstruments) forWorker(w *Worker, calls *instruments) *workerMetrics {
	m := &workerMetrics{jobInstruments: is, calls: calls, sink: attribute.String("outbox.sink", w.Sink)}
	m.only = metric.WithAttributeSet(attribute.NewSet(m.sink))
	for o := range m.byOutcome {
		name := strings.ReplaceAll(core.Outcome(o).String(), " ", "_") //nolint:gosec // a few constants
		m.byOutcome[o] = metric.WithAttributeSet(attribute.NewSet(m.sink, attribute.String("outbox.outcome", name)))
	}
	for rank := range m.byWait {
		for i, class := range []string{"none", "some"} {
			m.byWait[rank][i] = metric.WithAttributeSet(attribute.NewSet(m.sink,
				attribute.String("outbox.priority", core.Priority(rank-1).String()), //nolint:gosec // a few constants
				attribute.String("outbox.tenant.class", class)))
		}
	}
	return m
}

// claimed counts a claim. Tenants are told apart only by whether a job has one:
// their names would make too many series.
func (m *workerMetrics) claimed(jobs []*core.Claimed) {
	ctx := context.Background()
	m.claims.Add(ctx, 1, m.only)
	if len(jobs) == 0 {
		return
	}
	m.claimedJobs.Add(ctx, int64(len(jobs)), m.only)
	for _, j := range jobs {
		class := 0
		if j.Lease.Event.Tenant != "" {
			class = 1
		}
		wait := max(0, j.ClaimedAt.Sub(j.AvailableAt))
		m.wait.Record(ctx, wait.Seconds(), m.byWait[j.Priority.Rank()][class])
	}
}

// called counts one call to the sink.
func (m *workerMetrics) called(took time.Duration, n tally) {
	ctx := context.Background()
	m.calls.duration.Record(ctx, took.Seconds(), m.only)
	m.calls.size.Record(ctx, int64(n.total()), m.only)
	for o, jobs := range n {
		if jobs > 0 {
			m.jobs.Add(ctx, int64(jobs), m.byOutcome[o])
		}
	}
}

// wrote counts a job that has ended.
func (m *workerMetrics) wrote(one *settled) {
	ctx := context.Background()
	switch one.Kind {
	case core.Complete, core.Fail:
		m.attempts.Record(ctx, int64(one.Job.Lease.Attempt), m.only)
	}
	switch one.Kind {
	case core.Fail, core.EndUnknown:
		m.jobsFailed.Add(ctx, 1, metric.WithAttributes(m.sink, attribute.String("outbox.failure.code", one.Failure.Code)))
	}
}

func (m *workerMetrics) lostLeases(n int) { m.leasesLost.Add(context.Background(), int64(n), m.only) }

func (is *jobInstruments) tookBack(got core.TakeBackResult) {
	for state, n := range map[core.JobState]int{core.JobReady: got.Ready, core.JobFailed: got.Crashed, core.JobUnknown: got.Unknown} {
		if n > 0 {
			is.takenBack.Add(context.Background(), int64(n), metric.WithAttributes(attribute.String("outbox.state", string(state))))
		}
	}
}

func (is *jobInstruments) cleanedJobs(n int64) {
	if n > 0 {
		is.jobsRemoved.Add(context.Background(), n)
	}
}

// newWorkerTracer makes spans for a worker's calls.
func newWorkerTracer(provider trace.TracerProvider, w *Worker) tracer {
	return tracer{
		tracer: provider.Tracer(scope),
		name:   "send " + w.Sink,
		attrs: []attribute.KeyValue{
			attribute.String("messaging.operation.name", "send"),
			attribute.String("messaging.operation.type", "send"),
			attribute.String("outbox.sink", w.Sink),
		},
	}
}
