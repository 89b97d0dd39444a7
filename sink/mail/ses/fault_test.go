package ses

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/stretchr/testify/require"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/sink/mail"
)

// newTransport makes one for an endpoint, which is closed when the test ends.
func newTransport(t testing.TB, endpoint string, cfg Config) *Transport {
	t.Helper()
	tr, err := New(aws.Config{
		Region: "eu-west-1", BaseEndpoint: aws.String(endpoint),
		Credentials: credentials.NewStaticCredentialsProvider("test", "c4n4ry", ""),
	}, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tr.Close(context.Background()) })
	return tr
}

func envelope() mail.Envelope {
	return mail.Envelope{
		JobID: "m", Sender: "shop@example.org", Recipients: []string{"ada@example.org", "bob@example.org"},
		Message: []byte("From: shop@example.org\r\nTo: ada@example.org\r\nSubject: Hello\r\n\r\nbody\r\n"), Tags: map[string]string{"kind": "welcome"},
	}
}

// TestEachAnswerHasItsOutcome goes through what SES answers, by a scripted
// endpoint, and counts the requests.
func TestEachAnswerHasItsOutcome(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status  int
		code    string
		message string
		want    core.Outcome
		after   time.Duration
	}{
		"rate":             {429, "TooManyRequestsException", "Maximum sending rate exceeded.", core.Throttled, DefaultRetryAfter},
		"daily quota":      {429, "TooManyRequestsException", "Daily message quota exceeded.", core.Throttled, DefaultQuotaRetryAfter},
		"limit":            {400, "LimitExceededException", "", core.Throttled, DefaultQuotaRetryAfter},
		"throttled":        {400, "ThrottlingException", "", core.Throttled, DefaultRetryAfter},
		"suspended":        {400, "AccountSuspendedException", "", core.Unavailable, 0},
		"paused":           {400, "SendingPausedException", "", core.Unavailable, 0},
		"credentials":      {403, "UnrecognizedClientException", "", core.Unavailable, 0},
		"rights":           {403, "AccessDeniedException", "", core.Unavailable, 0},
		"expired":          {400, "ExpiredTokenException", "", core.Unavailable, 0},
		"no configuration": {404, "NotFoundException", "", core.Unavailable, 0},
		"rejected":         {400, "MessageRejected", "Email address is not verified.", core.Rejected, 0},
		"bad request":      {400, "BadRequestException", "", core.Rejected, 0},
		"mail from":        {400, "MailFromDomainNotVerifiedException", "", core.Rejected, 0},
		"internal":         {500, "InternalFailure", "", core.Unknown, 0},
		"gateway":          {502, "", "", core.Unknown, 0},
		"away":             {503, "ServiceUnavailable", "", core.Unavailable, 0},
		"no id":            {200, "", "", core.Unknown, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var requests atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				requests.Add(1)
				_, _ = io.Copy(io.Discard, r.Body)
				if c.code != "" {
					w.Header().Set("X-Amzn-Errortype", c.code)
				}
				w.WriteHeader(c.status)
				_ = json.NewEncoder(w).Encode(map[string]string{"message": c.message})
			}))
			t.Cleanup(server.Close)
			results := newTransport(t, server.URL, Config{}).Send(t.Context(), envelope())
			require.Len(t, results, 2)
			for _, r := range results {
				require.Equal(t, c.want, r.Outcome, r.Err)
				require.Equal(t, c.after, r.RetryAfter)
				require.Error(t, r.Err)
				require.NotContains(t, r.Err.Error(), "c4n4ry")
			}
			require.EqualValues(t, 1, requests.Load(), "the SDK tried again")
		})
	}
}

func TestWhatIsSent(t *testing.T) {
	t.Parallel()
	var got struct {
		FromEmailAddress, ConfigurationSetName string
		Destination                            struct{ ToAddresses []string }
		Content                                struct{ Raw struct{ Data []byte } }
		EmailTags                              []struct{ Name, Value string }
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil || r.URL.Path != "/v2/email/outbound-emails" {
			t.Errorf("%s: %v", r.URL.Path, err)
		}
		_, _ = io.WriteString(w, `{"MessageId": "id-1"}`)
	}))
	t.Cleanup(server.Close)
	m := envelope()
	for _, r := range newTransport(t, server.URL, Config{ConfigurationSet: "set"}).Send(t.Context(), m) {
		require.Equal(t, core.Result{Outcome: core.Delivered, Receipt: "id-1"}, r)
	}
	require.Equal(t, []any{m.Sender, "set", m.Recipients, m.Message}, []any{
		got.FromEmailAddress, got.ConfigurationSetName, got.Destination.ToAddresses, got.Content.Raw.Data,
	})
	require.Equal(t, "welcome", got.EmailTags[0].Value)
}

func outcome(t *testing.T, results []core.Result) core.Outcome {
	t.Helper()
	require.NotEmpty(t, results)
	require.Error(t, results[0].Err)
	return results[0].Outcome
}

// TestATimeOutAfterTheRequestIsUnknown: SES has all of it and doesn't answer.
func TestATimeOutAfterTheRequestIsUnknown(t *testing.T) {
	t.Parallel()
	end := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-end
	}))
	t.Cleanup(func() { close(end); server.Close() })
	require.Equal(t, core.Unknown, outcome(t, newTransport(t, server.URL, Config{Timeout: 300 * time.Millisecond}).Send(t.Context(), envelope())))
}

func TestAConnectionThatEndsAfterTheRequestIsUnknown(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		panic(http.ErrAbortHandler)
	}))
	t.Cleanup(server.Close)
	require.Equal(t, core.Unknown, outcome(t, newTransport(t, server.URL, Config{}).Send(t.Context(), envelope())))
}

// TestATimeOutWithinTheRequestIsNot: the endpoint doesn't read a mail that is too
// large for the buffers in between, so that it can't have all of it.
func TestATimeOutWithinTheRequestIsNot(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = conn.Close() })
		}
	}()
	m := envelope()
	m.Message = append(m.Message, bytes.Repeat([]byte("0123456789\r\n"), 2_500_000)...)
	require.Equal(t, core.Unavailable,
		outcome(t, newTransport(t, "http://"+listener.Addr().String(), Config{Timeout: 2 * time.Second}).Send(t.Context(), m)))
}

func TestNothingIsSentWhereNobodyListens(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	tr := newTransport(t, server.URL, Config{})
	require.Equal(t, core.Unavailable, outcome(t, tr.Send(t.Context(), envelope())))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, core.NotAttempted, outcome(t, tr.Send(ended, envelope())))
	require.NoError(t, tr.Close(t.Context()))
	require.NoError(t, tr.Close(t.Context()))
	results := tr.Send(t.Context(), envelope())
	require.Equal(t, core.NotAttempted, outcome(t, results))
	require.ErrorIs(t, results[0].Err, ErrClosed)
}

func TestWhatSESCannotCarryIsRejectedWithoutAsking(t *testing.T) {
	t.Parallel()
	tr := newTransport(t, "http://127.0.0.1:1", Config{})
	utf8 := envelope()
	utf8.SMTPUTF8 = true
	crowd := envelope()
	crowd.Recipients = make([]string, MaxRecipients+1)
	large := envelope()
	large.Message = make([]byte, MaxMessageBytes+1)
	for _, m := range []mail.Envelope{utf8, crowd, large} {
		results := tr.Send(t.Context(), m)
		require.Len(t, results, len(m.Recipients))
		require.Equal(t, core.Rejected, outcome(t, results))
	}
}

func TestAWrongConfigurationIsRefused(t *testing.T) {
	t.Parallel()
	_, err := New(aws.Config{}, Config{Timeout: -1, RetryAfter: -1})
	require.ErrorContains(t, err, "Timeout is negative")
	require.ErrorContains(t, err, "RetryAfter is negative")
}
