package amqp

import (
	"fmt"
	"strings"

	"github.com/rabbitmq/amqp091-go"

	"github.com/gooutbox/outbox/consumer"
	"github.com/gooutbox/outbox/internal/wire"
)

// Decode turns a message back into the event that sink/amqp sent. form "" finds
// the form by the headers. In the forms that carry no time, OccurredAt has whole
// seconds. The error is a *consumer.DecodeError.
func Decode(m amqp091.Delivery, form consumer.Form) (consumer.Delivery, error) {
	raw := &consumer.Raw{Headers: headersOf(m), Prefixes: prefixes, CorrelationID: m.CorrelationId, Body: m.Body}
	if !m.Timestamp.IsZero() {
		raw.OccurredAt = m.Timestamp.UTC()
	}
	if raw.Body == nil {
		raw.Body = []byte{} // AMQP doesn't tell them apart
	}
	d, err := consumer.Decode(raw, form)
	if _, died := m.Headers["x-death"]; died {
		d.DeadLettered = true
	}
	return d, err
}

// headersOf lists those that can be an event's: text, and what a foreign sender
// may have written as a number. What the broker adds is left out.
func headersOf(m amqp091.Delivery) []consumer.Header {
	headers := make([]consumer.Header, 0, len(m.Headers)+1)
	if m.ContentType != "" {
		headers = append(headers, consumer.Header{Name: wire.ContentType, Value: m.ContentType})
	}
	for name, value := range m.Headers {
		if isBrokers(name) {
			continue
		}
		var text string
		switch v := value.(type) {
		case string:
			text = v
		case []byte:
			text = string(v)
		case bool, int, int8, uint8, int16, int32, int64, float32, float64:
			text = fmt.Sprint(v)
		default:
			continue
		}
		headers = append(headers, consumer.Header{Name: name, Value: text})
	}
	return headers
}

const deliveryCount = "x-delivery-count"

func isBrokers(name string) bool {
	return name == deliveryCount || name == "x-acquired-count" || name == "x-death" ||
		strings.HasPrefix(name, "x-first-death-") || strings.HasPrefix(name, "x-last-death-")
}

// deliveries is how often the queue gave the message before, 0 where it doesn't
// count.
func deliveries(m amqp091.Delivery) int {
	switch n := m.Headers[deliveryCount].(type) {
	case int64:
		return int(n)
	case int32:
		return int(n)
	}
	return 0
}

// letter is the message as a dead letter: all that it had, and why.
func letter(m amqp091.Delivery, headers []consumer.Header) amqp091.Publishing {
	table := make(amqp091.Table, len(m.Headers)+len(headers))
	for name, value := range m.Headers {
		if name != deliveryCount {
			table[name] = value
		}
	}
	for _, h := range headers {
		table[h.Name] = h.Value
	}
	return amqp091.Publishing{
		Headers: table, ContentType: m.ContentType, ContentEncoding: m.ContentEncoding, DeliveryMode: amqp091.Persistent,
		Priority: m.Priority, CorrelationId: m.CorrelationId, ReplyTo: m.ReplyTo, MessageId: m.MessageId,
		Timestamp: m.Timestamp, Type: m.Type, AppId: m.AppId, Body: m.Body,
	}
}
