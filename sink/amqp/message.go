package amqp

import (
	"fmt"

	"github.com/rabbitmq/amqp091-go"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/wire"
)

// message is an event as it is published.
type message struct {
	lease         int
	exchange, key string
	publishing    amqp091.Publishing
	// alone: nothing else is sent until it has its answer.
	alone bool
}

func (m *message) size() int { return len(m.publishing.Body) }

// message makes that of a lease. An error is a *core.FieldError: the event can't
// travel.
func (s *Sink) message(l *core.Lease, scratch []wire.Header) (*message, []wire.Header, error) {
	exchange, err := s.exchange.of(l)
	if err != nil {
		return nil, scratch, fmt.Errorf("naming the exchange: %w", err)
	}
	key, err := s.routingKey.Of(l)
	if err != nil {
		return nil, scratch, fmt.Errorf("making the routing key: %w", err)
	}
	headers, err := s.encoder.Append(scratch[:0], l)
	if err != nil {
		return nil, scratch, fmt.Errorf("encoding the event: %w", err)
	}
	ev := &l.Event
	p := amqp091.Publishing{
		Headers: make(amqp091.Table, len(headers)), DeliveryMode: amqp091.Persistent,
		MessageId: ev.ID, Type: ev.Type, CorrelationId: ev.CorrelationID, Body: ev.Payload,
	}
	if s.cfg.Transient {
		p.DeliveryMode = amqp091.Transient
	}
	if ev.OccurredAt.Unix() > 0 { // AMQP knows no earlier time
		p.Timestamp = ev.OccurredAt
	}
	for _, h := range headers {
		if h.Name == wire.ContentType {
			p.ContentType = h.Value
			continue
		}
		if len(h.Name) > maxShort {
			return nil, headers, tooLong(fmt.Sprintf("Headers[%.64q]", h.Name), len(h.Name))
		}
		p.Headers[h.Name] = h.Value
	}
	for _, text := range []struct{ field, value string }{
		{"ID", p.MessageId}, {"Type", p.Type}, {"CorrelationID", p.CorrelationId}, {"ContentType", p.ContentType},
	} {
		if len(text.value) > maxShort {
			return nil, headers, tooLong(text.field, len(text.value))
		}
	}
	return &message{exchange: exchange, key: key, publishing: p}, headers, nil
}

func tooLong(field string, size int) error {
	return &core.FieldError{Field: field, Problem: "is longer than a short string of AMQP", Limit: maxShort, Size: size}
}

// fits returns a *core.FieldError for an event that no broker takes: the body
// is cut into frames, but all properties must be in one.
func (m *message) fits(frameMax int) error {
	if frameMax <= 0 {
		return nil
	}
	const frame = 8 // bytes around what a frame carries
	if n := m.propertyBytes() + frame; n > frameMax {
		return &core.FieldError{Field: "Headers", Problem: "are too large for one AMQP frame (frame_max)", Limit: frameMax, Size: n}
	}
	return nil
}

// propertyBytes is the size of the content header: 14 bytes of its own, a table
// of long strings, short strings, one byte of delivery mode, 8 of time.
func (m *message) propertyBytes() int {
	p := &m.publishing
	n := 14 + 1
	if len(p.Headers) > 0 {
		n += 4
	}
	for name, value := range p.Headers {
		text, _ := value.(string) // as message made it
		n += 1 + len(name) + 1 + 4 + len(text)
	}
	for _, text := range []string{p.ContentType, p.CorrelationId, p.MessageId, p.Type} {
		if text != "" {
			n += 1 + len(text)
		}
	}
	if !p.Timestamp.IsZero() {
		n += 8
	}
	return n
}
