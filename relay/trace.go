package relay

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/gooutbox/outbox/core"
)

// maxLinks bounds the links of a span: backends keep 128 by default.
const maxLinks = 128

// tracer makes a span for each call to a sink, linked to the traces of the
// transactions that wrote its events.
type tracer struct {
	tracer trace.Tracer
	name   string
	attrs  []attribute.KeyValue
}

func newTracer(provider trace.TracerProvider, r *Route) tracer {
	return tracer{
		tracer: provider.Tracer(scope),
		name:   "send " + r.Sink,
		attrs: []attribute.KeyValue{
			attribute.String("messaging.operation.name", "send"),
			attribute.String("messaging.operation.type", "send"),
			attribute.String("outbox.route", r.Name),
			attribute.String("outbox.sink", r.Sink),
		},
	}
}

// start begins a span. Where no one records it, nothing is done for the single
// events.
func (tr *tracer) start(ctx context.Context, leases []core.Lease) (context.Context, trace.Span) {
	ctx, span := tr.tracer.Start(ctx, tr.name, trace.WithSpanKind(trace.SpanKindProducer))
	if !span.IsRecording() {
		return ctx, span
	}
	span.SetAttributes(tr.attrs...)
	span.SetAttributes(attribute.Int("messaging.batch.message_count", len(leases)))
	links := 0
	for i := range leases {
		if links == maxLinks {
			break
		}
		carrier := propagation.MapCarrier(leases[i].Event.Headers)
		sc := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier))
		if sc.IsValid() {
			span.AddLink(trace.Link{SpanContext: sc, Attributes: []attribute.KeyValue{
				attribute.String("messaging.message.id", leases[i].Event.ID),
			}})
			links++
		}
	}
	return ctx, span
}

// end tells what the call answered.
func (tr *tracer) end(span trace.Span, n tally, results []core.Result) {
	if span.IsRecording() {
		if failed := len(results) - n[core.Delivered]; failed > 0 {
			span.SetStatus(codes.Error, fmt.Sprintf("%d of %d events were not delivered", failed, len(results)))
		}
		for i := range results {
			if results[i].Outcome != core.Delivered && results[i].Err != nil {
				span.RecordError(results[i].Err)
				break
			}
		}
	}
	span.End()
}
