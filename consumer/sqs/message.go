package sqs

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/gooutbox/outbox/consumer"
	"github.com/gooutbox/outbox/internal/wire"
)

// Decode turns a message back into the event that sink/sqs sent. It must have
// been received with all attributes. form "" finds the form by the attributes.
// In the forms without an attribute for it, AggregateID is the group of a FIFO
// queue, as far as that tells it, and empty otherwise. The error is a
// *consumer.DecodeError.
func Decode(m types.Message, form consumer.Form) (consumer.Delivery, error) {
	all, err := wire.Gather(texts(m))
	if err != nil {
		return consumer.Delivery{}, &consumer.DecodeError{Field: wire.Rest, Problem: "is no JSON object of texts", Err: err}
	}
	encoding := ""
	headers := make([]consumer.Header, 0, len(all))
	for _, h := range all {
		if h.Name == wire.Body {
			encoding = h.Value
			continue
		}
		headers = append(headers, h)
	}
	payload, err := wire.Payload(aws.ToString(m.Body), encoding)
	if err != nil {
		return consumer.Delivery{}, &consumer.DecodeError{Field: "the body", Problem: "is not what " + wire.Body + " says", Err: err}
	}
	raw := &consumer.Raw{Headers: headers, Prefixes: prefixes, Body: payload}
	if group := group(m); !strings.HasPrefix(group, hashPrefix) {
		raw.Key = group
	}
	return consumer.Decode(raw, form)
}

// hashPrefix begins a group that stands for a key that SQS doesn't take.
const hashPrefix = "sha256:"

// texts are the attributes of text and numbers, by name.
func texts(m types.Message) []consumer.Header {
	headers := make([]consumer.Header, 0, len(m.MessageAttributes))
	for _, name := range slices.Sorted(maps.Keys(m.MessageAttributes)) {
		if value := m.MessageAttributes[name].StringValue; value != nil {
			headers = append(headers, consumer.Header{Name: name, Value: *value})
		}
	}
	return headers
}

func group(m types.Message) string {
	return m.Attributes[string(types.MessageSystemAttributeNameMessageGroupId)]
}

// deliveries is how often the queue has given the message, this time included.
func deliveries(m types.Message) int {
	n, err := strconv.Atoi(m.Attributes[string(types.MessageSystemAttributeNameApproximateReceiveCount)])
	if err != nil {
		return 1
	}
	return n
}

// maxAttributes is the most attributes of a message.
const maxAttributes = 10

// letter is the message as a dead letter: all that it had, and why. Attributes
// beyond the number are gathered in one, as the sink does it.
func letter(m types.Message, url string, death *consumer.Death, from, name string, at time.Time) *sqs.SendMessageInput {
	headers, err := wire.Gather(texts(m))
	if err != nil { // then it isn't ours
		headers = texts(m)
	}
	attributes := map[string]types.MessageAttributeValue{}
	travels := map[string]types.MessageAttributeValue{}
	for name, value := range m.MessageAttributes {
		if value.StringValue == nil || name == wire.Body || name == wire.Rest && err != nil {
			attributes[name] = value // as it is
		} else {
			travels[name] = value
		}
	}
	headers = slices.DeleteFunc(headers, func(h consumer.Header) bool {
		_, kept := attributes[h.Name]
		return kept || h.Name == wire.Body
	})
	headers = death.Headers(headers, from, name, at)
	most := maxAttributes - len(attributes)
	fitted, fitErr := wire.Fit(headers, max(most, 1), func(h consumer.Header) bool {
		_, came := travels[h.Name]
		return came || strings.HasPrefix(h.Name, "outboxdead")
	})
	if fitErr != nil || most < 1 { // a foreign message that can't take more: it stays as it is
		fitted, attributes = nil, m.MessageAttributes
	}
	for _, h := range fitted {
		value := types.MessageAttributeValue{DataType: aws.String("String"), StringValue: aws.String(h.Value)}
		if came, ok := travels[h.Name]; ok {
			value.DataType = came.DataType
		}
		attributes[h.Name] = value
	}
	in := &sqs.SendMessageInput{QueueUrl: &url, MessageBody: m.Body, MessageAttributes: attributes}
	if group := group(m); group != "" {
		in.MessageGroupId = &group
		in.MessageDeduplicationId = m.MessageId
		if dedup, ok := m.Attributes[string(types.MessageSystemAttributeNameMessageDeduplicationId)]; ok {
			in.MessageDeduplicationId = &dedup
		}
	}
	return in
}
