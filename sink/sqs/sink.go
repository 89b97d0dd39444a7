package sqs

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/calls"
	"github.com/gooutbox/outbox/internal/naming"
	"github.com/gooutbox/outbox/internal/wire"
)

// ErrClosed is the reason of what Deliver answers after Close.
var ErrClosed = errors.New("the SQS sink is closed")

// Sink delivers to Amazon SQS. Make it with New. Its methods may be called by
// several goroutines at once.
type Sink struct {
	cfg     Config
	client  *awssqs.Client
	queues  *naming.Template
	known   *directory
	encoder *wire.Encoder
	// idle ends connections that nobody uses.
	idle func()

	calls *calls.Calls
}

var (
	_ core.Sink      = (*Sink)(nil)
	_ core.Describer = (*Sink)(nil)
	_ core.Checker   = (*Sink)(nil)
)

// New makes a sink that uses the region, the endpoint and the credentials of an
// AWS configuration, such as config.LoadDefaultConfig of the AWS SDK returns. It
// doesn't connect: use Check for that. Whatever the configuration says of
// retries, there are none: the relay retries. Connections are the sink's own,
// made as the configuration's HTTP client does it; a client that is not the
// SDK's is used as it is, and the caller closes its connections.
//
// The error tells every problem of cfg.
func New(awsConfig aws.Config, cfg Config) (*Sink, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configuring the SQS sink: %w", err)
	}
	cfg = cfg.withDefaults()
	names, err := newQueues(cfg.Queue)
	if err != nil {
		return nil, fmt.Errorf("configuring the SQS sink: %w", err)
	}
	client, idle := ownClient(awsConfig.HTTPClient)
	s := &Sink{
		cfg: cfg, queues: names, known: &directory{queues: map[string]*queue{}},
		encoder: wire.NewEncoder(cfg.Form, wire.SQSPrefix, cfg.Source), idle: idle, calls: calls.New(),
		client: awssqs.NewFromConfig(awsConfig, func(o *awssqs.Options) {
			o.Retryer, o.RetryMaxAttempts = aws.NopRetryer{}, 0
			o.HTTPClient = client
		}),
	}
	return s, nil
}

// idleConnections is how many connections are kept: what several calls of
// Deliver use at once.
const idleConnections = 64

// ownClient returns a client like the given one with connections of its own,
// and what ends those that are idle.
func ownClient(given aws.HTTPClient) (aws.HTTPClient, func()) {
	buildable, ok := given.(*awshttp.BuildableClient)
	if given == nil {
		buildable, ok = awshttp.NewBuildableClient(), true
	}
	if !ok {
		return given, func() {}
	}
	transport := buildable.GetTransport()
	transport.MaxIdleConns = max(transport.MaxIdleConns, idleConnections)
	transport.MaxIdleConnsPerHost = max(transport.MaxIdleConnsPerHost, idleConnections)
	return &http.Client{
		Transport: transport, Timeout: buildable.GetTimeout(),
		// A signed request can't be sent to another place.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, transport.CloseIdleConnections
}

// Capabilities declares PrefixPerKey and SQS's own limit of a message.
func (s *Sink) Capabilities() core.Capabilities {
	return core.Capabilities{PrefixPerKey: true, MaxEventBytes: maxBatchBytes}
}

// Deliver sends the events, see the package's promise. A delivered event's
// receipt is queue/message-id, on a FIFO queue followed by @sequence-number.
//
// Outcomes: Rejected when the event makes no valid queue or message, when it is
// too large for its queue, where that limit may be read, or when SQS says that
// the message is at fault. Refused when SQS couldn't take the message, or when its
// queue doesn't exist or gives no right; where all events go to one queue these
// two are Unavailable, since nothing can be delivered. Unavailable when SQS can't
// be reached, doesn't accept the credentials or says that it is not available.
// Throttled when it asks to send less. Unknown when the request was sent and no
// answer came, an answer without the message, or one of an internal error.
func (s *Sink) Deliver(ctx context.Context, leases []core.Lease) []core.Result {
	results := make([]core.Result, len(leases))
	if len(leases) == 0 {
		return results
	}
	ctx, done, ok := s.calls.Begin(ctx)
	if !ok {
		for i := range results {
			results[i] = core.Result{Outcome: core.Unavailable, Err: ErrClosed}
		}
		return results
	}
	defer done()
	d := newDelivery(s, leases, results)
	d.run(ctx)
	d.finish()
	return results
}

// Close cuts off the calls that are under way, which then answer truthfully,
// waits for them, and ends idle connections. Its error is that of ctx, if that
// ended first; the calls end all the same.
func (s *Sink) Close(ctx context.Context) error {
	if err := s.calls.Close(ctx, s.idle); err != nil {
		return fmt.Errorf("closing the SQS sink: %w", err)
	}
	return nil
}
