package sqs

import (
	"context"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
	"github.com/gooutbox/outbox/internal/wire"
)

// awsConfig is the AWS configuration for an endpoint of tests.
func awsConfig(endpoint string) aws.Config {
	return aws.Config{
		Region: "eu-west-1", BaseEndpoint: aws.String(endpoint),
		Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""),
	}
}

// newSink makes a sink that is closed when the test ends.
func newSink(t testing.TB, endpoint string, cfg Config) *Sink {
	t.Helper()
	s, err := New(awsConfig(endpoint), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	return s
}

// queueName returns a name that no other test uses, of at most 80 characters.
func queueName(t testing.TB, fifo bool) string {
	t.Helper()
	name := servicetest.Name(t)
	if fifo {
		name += fifoSuffix
	}
	return name
}

// createQueue makes a queue of this test alone, which is deleted when the test
// ends, and returns its URL.
func createQueue(t testing.TB, client *awssqs.Client, name string, attributes map[string]string) string {
	t.Helper()
	if isFIFO(name) {
		if attributes == nil {
			attributes = map[string]string{}
		}
		attributes["FifoQueue"] = "true"
	}
	out, err := client.CreateQueue(t.Context(), &awssqs.CreateQueueInput{QueueName: &name, Attributes: attributes})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = client.DeleteQueue(context.Background(), &awssqs.DeleteQueueInput{QueueUrl: out.QueueUrl})
	})
	return aws.ToString(out.QueueUrl)
}

// received is a message as a consumer gets it.
type received struct {
	headers map[string]string
	payload []byte
	group   string
	body    string
	sent    string // when, in milliseconds
}

// drain takes all messages out of a queue, in the order in which it gives them.
func drain(t testing.TB, client *awssqs.Client, url string) []received {
	t.Helper()
	var all []received
	for {
		out, err := client.ReceiveMessage(context.Background(), &awssqs.ReceiveMessageInput{
			QueueUrl: &url, MaxNumberOfMessages: 10, MessageAttributeNames: []string{"All"},
			MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(out.Messages) == 0 {
			return all
		}
		for i := range out.Messages {
			m := &out.Messages[i]
			all = append(all, open(t, m))
			if _, err := client.DeleteMessage(context.Background(), &awssqs.DeleteMessageInput{QueueUrl: &url, ReceiptHandle: m.ReceiptHandle}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// open reads a message as docs/wire.md says.
func open(t testing.TB, m *types.Message) received {
	t.Helper()
	var headers []wire.Header
	for name, value := range m.MessageAttributes {
		headers = append(headers, wire.Header{Name: name, Value: aws.ToString(value.StringValue)})
	}
	headers, err := wire.Gather(headers)
	if err != nil {
		t.Fatal(err)
	}
	r := received{headers: map[string]string{}, body: aws.ToString(m.Body), group: m.Attributes["MessageGroupId"], sent: m.Attributes["SentTimestamp"]}
	for _, h := range headers {
		r.headers[h.Name] = h.Value
	}
	if r.payload, err = wire.Payload(r.body, r.headers[wire.Body]); err != nil {
		t.Fatal(err)
	}
	return r
}

// event makes a lease.
func event(id, key string, payload string) core.Lease {
	return core.Lease{
		Source: "/outbox/shop/outbox", Route: "sqs", Fence: 7, Attempt: 1,
		Event: core.Event{ID: id, Type: "order.placed", AggregateID: key, Payload: []byte(payload)},
	}
}

// outcomes lists them as words.
func outcomes(results []core.Result) string {
	words := make([]string, len(results))
	for i, r := range results {
		words[i] = r.Outcome.String()
	}
	return strings.Join(words, ", ")
}
