package ses

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/sesv2"
	"github.com/aws/aws-sdk-go-v2/service/sesv2/types"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/calls"
	"github.com/gooutbox/outbox/sink/mail"
)

// Limits of SES ("Service quotas in Amazon SES"), and defaults.
const (
	// MaxRecipients of one mail.
	MaxRecipients = 50
	// MaxMessageBytes of one mail: 40 MB.
	MaxMessageBytes = 40_000_000
	// DefaultTimeout ends a call.
	DefaultTimeout = 30 * time.Second
	// DefaultRetryAfter is the pause after a sending rate was exceeded, which SES
	// counts by the second.
	DefaultRetryAfter = time.Second
	// DefaultQuotaRetryAfter is the pause after a quota of 24 hours was used up.
	DefaultQuotaRetryAfter = 15 * time.Minute
)

// Config says how mails are sent. The zero value is ready for use.
type Config struct {
	// ConfigurationSet that each mail names. Defaults to none.
	ConfigurationSet string
	// Timeout ends a call. Defaults to DefaultTimeout.
	Timeout time.Duration
	// RetryAfter and QuotaRetryAfter are the pauses that are asked for when a rate
	// or a quota is exceeded. They default to DefaultRetryAfter and
	// DefaultQuotaRetryAfter.
	RetryAfter, QuotaRetryAfter time.Duration
}

// Validate reports every problem at once, or nil.
func (c Config) Validate() error {
	var errs []error
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"Timeout", c.Timeout}, {"RetryAfter", c.RetryAfter}, {"QuotaRetryAfter", c.QuotaRetryAfter}} {
		if d.value < 0 {
			errs = append(errs, errors.New(d.name+" is negative"))
		}
	}
	if len(c.ConfigurationSet) > 64 {
		errs = append(errs, fmt.Errorf("ConfigurationSet has %d bytes, limit 64", len(c.ConfigurationSet)))
	}
	return errors.Join(errs...)
}

// ErrClosed is the reason of what Send answers after Close.
var ErrClosed = errors.New("the SES transport is closed")

// Transport sends by SES. Make it with New. Its methods may be called by several
// goroutines at once.
type Transport struct {
	cfg    Config
	client *sesv2.Client
	idle   func()
	calls  *calls.Calls
}

var _ mail.Transport = (*Transport)(nil)

// New makes a transport that uses the region, the endpoint and the credentials of
// an AWS configuration, such as config.LoadDefaultConfig of the AWS SDK returns.
// It doesn't connect. An HTTP client that isn't the SDK's is used as it is; it
// must not send requests again by itself.
func New(awsConfig aws.Config, cfg Config) (*Transport, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configuring the SES transport: %w", err)
	}
	for _, d := range []struct {
		value *time.Duration
		zero  time.Duration
	}{
		{&cfg.Timeout, DefaultTimeout}, {&cfg.RetryAfter, DefaultRetryAfter}, {&cfg.QuotaRetryAfter, DefaultQuotaRetryAfter},
	} {
		if *d.value == 0 {
			*d.value = d.zero
		}
	}
	t := &Transport{cfg: cfg, idle: func() {}, calls: calls.New()}
	via := awsConfig.HTTPClient
	buildable, own := via.(*awshttp.BuildableClient)
	if via == nil {
		buildable, own = awshttp.NewBuildableClient(), true
	}
	if own {
		// One of its own, so that Close ends nobody else's connections.
		transport := buildable.GetTransport().Clone()
		client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		via, t.idle = client, client.CloseIdleConnections
	}
	t.client = sesv2.NewFromConfig(awsConfig, func(o *sesv2.Options) {
		o.Retryer, o.RetryMaxAttempts = aws.NopRetryer{}, 0
		o.HTTPClient = watcher{via}
	})
	return t, nil
}

// Close keeps to mail.Transport.
func (t *Transport) Close(ctx context.Context) error { return t.calls.Close(ctx, t.idle) }

// Send keeps to mail.Transport. All recipients have the same outcome.
func (t *Transport) Send(ctx context.Context, m mail.Envelope) []core.Result {
	result := t.send(ctx, m)
	results := make([]core.Result, len(m.Recipients))
	for i := range results {
		results[i] = result
	}
	return results
}

func (t *Transport) send(ctx context.Context, m mail.Envelope) core.Result {
	ctx, done, open := t.calls.Begin(ctx)
	if !open {
		return core.Result{Outcome: core.NotAttempted, Err: ErrClosed}
	}
	defer done()
	if err := refuse(m); err != nil {
		return core.Result{Outcome: core.Rejected, Err: err}
	}
	if err := ctx.Err(); err != nil {
		return core.Result{Outcome: core.NotAttempted, Err: err}
	}
	within, cancel := context.WithTimeout(ctx, t.cfg.Timeout)
	defer cancel()
	seen := &sight{}
	out, err := t.client.SendEmail(context.WithValue(within, sightKey{}, seen), t.input(m))
	if err == nil && aws.ToString(out.MessageId) == "" {
		err = errors.New("SES answered without an id")
	}
	if err == nil {
		return core.Result{Outcome: core.Delivered, Receipt: *out.MessageId}
	}
	return t.judge(ctx, err, seen)
}

// refuse tells what SES would refuse, or can't carry.
func refuse(m mail.Envelope) error {
	switch {
	case len(m.Recipients) > MaxRecipients:
		return fmt.Errorf("the mail has %d recipients, SES's limit is %d", len(m.Recipients), MaxRecipients)
	case len(m.Message) > MaxMessageBytes:
		return fmt.Errorf("the mail has %d bytes, SES's limit is %d", len(m.Message), MaxMessageBytes)
	case m.SMTPUTF8:
		return errors.New("the mail has an address beyond ASCII before its @, which SES can't do")
	}
	return nil
}

func (t *Transport) input(m mail.Envelope) *sesv2.SendEmailInput {
	in := &sesv2.SendEmailInput{
		FromEmailAddress: aws.String(m.Sender),
		Destination:      &types.Destination{ToAddresses: m.Recipients},
		Content:          &types.EmailContent{Raw: &types.RawMessage{Data: m.Message}},
	}
	if t.cfg.ConfigurationSet != "" {
		in.ConfigurationSetName = aws.String(t.cfg.ConfigurationSet)
	}
	for name, value := range m.Tags {
		in.EmailTags = append(in.EmailTags, types.MessageTag{Name: aws.String(name), Value: aws.String(value)})
	}
	return in
}
