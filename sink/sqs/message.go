package sqs

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/wire"
)

// textType is the data type of all attributes; its length counts in a message.
const textType = "String"

// message is an event as SQS gets it.
type message struct {
	body       string
	attributes []wire.Header
	// group and dedup are empty on a standard queue.
	group, dedup string
	size         int
}

// encode makes the message of a lease. It is the only place that makes one, and
// depends on the lease alone: SQS answers a repeat with another body under one
// deduplication id as if it had taken it. The error is a *core.FieldError.
func (s *Sink) encode(l *core.Lease, fifo bool) (message, error) {
	headers, err := s.encoder.Append(nil, l)
	if err != nil {
		return message{}, err
	}
	body, encoding := wire.Text(l.Event.Payload, isCharacter)
	most := maxAttributes
	if encoding != "" {
		if encoding == wire.BodyBase64 && s.cfg.Binary == BinaryReject {
			return message{}, &core.FieldError{Field: "Payload", Problem: "is no text that SQS takes: send it in base64 (Binary) or another encoding"}
		}
		most--
	}
	if headers, err = wire.Fit(headers, most, travels); err != nil {
		return message{}, err
	}
	if encoding != "" {
		headers = append(headers, wire.Header{Name: wire.Body, Value: encoding})
	}
	m := message{body: body, attributes: headers, size: len(body)}
	for _, h := range headers {
		m.size += len(h.Name) + len(textType) + len(h.Value)
	}
	if fifo {
		m.group, m.dedup = identifier(l.Event.AggregateID), identifier(l.Event.ID)
	}
	return m, nil
}

// travels tells whether a header can be an attribute.
func travels(h wire.Header) bool {
	return h.Value != "" && isAttributeName(h.Name) && wire.IsText(h.Value, isCharacter)
}

// entry is the message as the nth of a batch, counted from 0.
func (m *message) entry(n int) types.SendMessageBatchRequestEntry {
	e := types.SendMessageBatchRequestEntry{
		Id:                aws.String(strconv.Itoa(n)),
		MessageBody:       &m.body,
		MessageAttributes: make(map[string]types.MessageAttributeValue, len(m.attributes)),
	}
	for _, h := range m.attributes {
		e.MessageAttributes[h.Name] = types.MessageAttributeValue{DataType: aws.String(textType), StringValue: aws.String(h.Value)}
	}
	if m.group != "" {
		e.MessageGroupId, e.MessageDeduplicationId = &m.group, &m.dedup
	}
	return e
}

// checkSize is why a message of this size can't be taken, or nil.
func (q *queue) checkSize(size int) error {
	if size <= q.limit {
		return nil
	}
	return &core.FieldError{
		Field: core.WholeEvent, Problem: fmt.Sprintf("is too large for queue %q", q.name), Size: size, Limit: q.limit,
	}
}

var errKeyFailed = errors.New("an earlier event of the key was not delivered")
