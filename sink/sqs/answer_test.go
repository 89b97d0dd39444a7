package sqs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"

	"github.com/gooutbox/outbox/core"
)

// several makes leases of keys key-0, key-1, …
func several(n int) []core.Lease {
	leases := make([]core.Lease, n)
	for i := range leases {
		leases[i] = event(fmt.Sprintf("id-%d", i), fmt.Sprintf("key-%d", i), "{}")
	}
	return leases
}

func TestAPartialFailureIsReadEntryByEntry(t *testing.T) {
	t.Parallel()
	for _, queue := range []string{"orders", "orders.fifo"} {
		s := newServer(t, queue)
		s.on(func(*batch) reaction {
			return reaction{
				refuse: map[string]failure{
					"1": {"InvalidMessageContents", true}, "2": {"InternalError", false}, "3": {"ThrottlingException", true},
					"4": {"KMS.AccessDeniedException", true}, "5": {"AWS.SimpleQueueService.InternalError", false},
				},
				omit: map[string]bool{"7": true}, both: map[string]bool{"8": true},
			}
		})
		sink := newSink(t, s.http.URL, Config{Queue: queue})
		leases := several(10)
		later := event("later", "key-2", "{}")
		leases = append(leases, later, event("other", "key-9", "{}"))
		results := sink.Deliver(t.Context(), leases)
		want := strings.Join([]string{
			"delivered", "rejected", "refused", "throttled", "refused", "refused",
			"delivered", "unknown", "unknown", "delivered", "not attempted", "delivered",
		}, ", ")
		if got := outcomes(results); got != want {
			t.Errorf("%s: got %s\nwant %s", queue, got, want)
		}
		if results[3].RetryAfter <= 0 {
			t.Errorf("throttled without a time")
		}
		for _, m := range s.messages(t, queue) {
			if m.ID == later.Event.ID {
				t.Error("an event overtook the one of its key that was refused")
			}
		}
	}
}

func TestEachAnswerToARequestHasItsOutcome(t *testing.T) {
	t.Parallel()
	hung := make(chan struct{})
	t.Cleanup(func() { close(hung) })
	for _, c := range []struct {
		name  string
		do    reaction
		one   core.Outcome // of a single event
		fixed core.Outcome // the same where all events go to one queue, if another
	}{
		{name: "stored and cut", do: reaction{cut: true}, one: core.Unknown},
		{name: "slow", do: reaction{wait: hung}, one: core.Unknown},
		{name: "internal error", do: reaction{status: 500, code: "InternalError"}, one: core.Unknown},
		{name: "internal error after storing", do: reaction{status: 500, code: "InternalError", stores: true}, one: core.Unknown},
		{name: "bad gateway", do: reaction{status: 502, code: "<html>"}, one: core.Unknown},
		{name: "gateway time-out", do: reaction{status: 504, code: "<html>"}, one: core.Unknown},
		{name: "unavailable", do: reaction{status: 503, code: "ServiceUnavailable"}, one: core.Unavailable},
		{name: "throttled", do: reaction{status: 400, code: "ThrottlingException"}, one: core.Throttled},
		{name: "throttled, old name", do: reaction{status: 403, code: "RequestThrottled"}, one: core.Throttled},
		{name: "too many requests", do: reaction{status: 429, code: "<html>"}, one: core.Throttled},
		{name: "key throttled", do: reaction{status: 400, code: "KmsThrottled"}, one: core.Throttled},
		{name: "key disabled", do: reaction{status: 400, code: "KmsDisabled"}, one: core.Refused, fixed: core.Unavailable},
		{name: "no such queue", do: reaction{status: 400, code: "QueueDoesNotExist"}, one: core.Refused, fixed: core.Unavailable},
		{name: "no rights", do: reaction{status: 403, code: "AccessDeniedException"}, one: core.Refused, fixed: core.Unavailable},
		{name: "expired token", do: reaction{status: 403, code: "ExpiredToken"}, one: core.Unavailable},
		{name: "unknown key id", do: reaction{status: 403, code: "InvalidClientTokenId"}, one: core.Unavailable},
		{name: "wrong signature", do: reaction{status: 403, code: "SignatureDoesNotMatch"}, one: core.Unavailable},
		{name: "clock", do: reaction{status: 400, code: "RequestTimeTooSkewed"}, one: core.Unavailable},
		{name: "forbidden characters", do: reaction{status: 400, code: "InvalidMessageContents"}, one: core.Rejected},
		{name: "too long", do: reaction{status: 400, code: "BatchRequestTooLong"}, one: core.Rejected},
		{name: "unheard of", do: reaction{status: 400, code: "SomethingNew"}, one: core.Refused},
		{name: "another server", do: reaction{status: 404, code: "<html>"}, one: core.Unavailable},
		{name: "elsewhere", do: reaction{status: 302, code: "<html>", header: map[string]string{"Location": "http://127.0.0.1:1/"}}, one: core.Unknown},
		{name: "no JSON", do: reaction{text: "<html>"}, one: core.Unknown},
		{name: "half an answer", do: reaction{text: `{"Successful":[{"Id":"0"`}, one: core.Unknown},
		{name: "another id", do: reaction{text: `{"Successful":[{"Id":"7","MessageId":"m"}]}`}, one: core.Unknown},
		{name: "no answer for it", do: reaction{text: `{"Successful":[]}`}, one: core.Unknown},
		{name: "another body", do: reaction{text: `{"Successful":[{"Id":"0","MessageId":"m","MD5OfMessageBody":"00"}]}`}, one: core.Unknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.fixed == 0 {
				c.fixed = c.one
			}
			for queue, want := range map[string]core.Outcome{"orders": c.fixed, "{{ .Tenant }}orders": c.one} {
				s := newServer(t, "orders")
				s.on(func(*batch) reaction { return c.do })
				cfg := Config{Queue: queue, RequestTimeout: time.Minute}
				if c.do.wait != nil {
					cfg.RequestTimeout = 2 * time.Second
				}
				sink := newSink(t, s.http.URL, cfg)
				r := sink.Deliver(t.Context(), several(1))[0]
				if r.Outcome != want {
					t.Errorf("queue %s: %v (%v), want %v", queue, r.Outcome, r.Err, want)
				}
				if n := s.requests("SendMessageBatch"); n != 1 {
					t.Errorf("%d requests, want one: retries are the relay's", n)
				}
				if r.Outcome == core.Throttled && r.RetryAfter != throttlePause {
					t.Errorf("retry after %v", r.RetryAfter)
				}
			}
		})
	}
}

func TestTheWaitThatSQSAsksForIsPassedOn(t *testing.T) {
	t.Parallel()
	s := newServer(t, "orders")
	s.on(func(*batch) reaction {
		return reaction{status: 429, code: "ThrottlingException", header: map[string]string{"Retry-After": "7"}}
	})
	if r := newSink(t, s.http.URL, Config{Queue: "orders"}).Deliver(t.Context(), several(1))[0]; r.RetryAfter != 7*time.Second {
		t.Errorf("retry after %v", r.RetryAfter)
	}
}

// An SDK that retries by itself would hide outages, and repeat.
func TestRetriesOfTheConfigurationAreSwitchedOff(t *testing.T) {
	t.Parallel()
	s := newServer(t, "orders")
	s.on(func(*batch) reaction { return reaction{status: 500, code: "InternalError"} })
	cfg := awsConfig(s.http.URL)
	cfg.RetryMaxAttempts, cfg.RetryMode = 5, aws.RetryModeAdaptive
	cfg.Retryer = func() aws.Retryer { return retry.NewStandard() }
	sink, err := New(cfg, Config{Queue: "orders"})
	if err != nil {
		t.Fatal(err)
	}
	sink.Deliver(t.Context(), several(1))
	if n := s.requests("SendMessageBatch"); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
}

// A request that one bad message spoils fails that message alone.
func TestTheMessageToBlameIsFound(t *testing.T) {
	t.Parallel()
	s := newServer(t, "orders")
	s.on(func(b *batch) reaction {
		if slices.ContainsFunc(b.Entries, func(m sent) bool { return m.MessageBody == "poison" }) {
			return reaction{status: 400, code: "InvalidMessageContents"}
		}
		return reaction{}
	})
	leases := several(10)
	leases[4].Event.Payload = []byte("poison")
	results := newSink(t, s.http.URL, Config{Queue: "orders"}).Deliver(t.Context(), leases)
	for i, r := range results {
		if want := map[bool]core.Outcome{true: core.Rejected, false: core.Delivered}[i == 4]; r.Outcome != want {
			t.Errorf("result %d is %v (%v), want %v", i, r.Outcome, r.Err, want)
		}
	}
	if n := len(s.messages(t, "orders")); n != 9 {
		t.Errorf("%d messages are there, want 9", n)
	}
}

func TestAQueueThatIsAwayFailsOnlyWhatGoesThere(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"QueueDoesNotExist", "AccessDenied"} {
		s := newServer(t, "a", "b.fifo")
		s.on(func(b *batch) reaction {
			if b.queue == "a" {
				return reaction{status: 403, code: code}
			}
			return reaction{}
		})
		leases := several(40)
		for i := range leases {
			leases[i].Event.Tenant = []string{"a", "b.fifo", "nowhere"}[i%3]
		}
		results := newSink(t, s.http.URL, Config{Queue: "{{ .Tenant }}"}).Deliver(t.Context(), leases)
		for i, r := range results {
			switch tenant := leases[i].Event.Tenant; {
			case tenant == "b.fifo" && r.Outcome != core.Delivered,
				tenant == "nowhere" && r.Outcome != core.Refused,
				tenant == "a" && r.Outcome != core.Refused && r.Outcome != core.NotAttempted:
				t.Errorf("event %d of %s is %v (%v)", i, tenant, r.Outcome, r.Err)
			}
		}
		if results[0].Outcome != core.Refused || !strings.Contains(results[2].Err.Error(), "create the queue") {
			t.Errorf("%v (%v)", results[0].Outcome, results[2].Err)
		}
		if n := s.requests("GetQueueUrl"); n != 3 {
			t.Errorf("%d look-ups of three queues", n)
		}
	}
}

func TestThrottlingOfOneQueueLeavesTheOthers(t *testing.T) {
	t.Parallel()
	s := newServer(t, "a", "b")
	s.on(func(b *batch) reaction {
		if b.queue == "a" {
			return reaction{status: 400, code: "ThrottlingException"}
		}
		return reaction{}
	})
	leases := several(60)
	for i := range leases {
		leases[i].Event.Tenant = []string{"a", "b"}[i%2]
	}
	results := newSink(t, s.http.URL, Config{Queue: "{{ .Tenant }}", Concurrency: 1}).Deliver(t.Context(), leases)
	for i, r := range results {
		if i%2 == 1 && r.Outcome != core.Delivered || i%2 == 0 && r.Outcome != core.Throttled && r.Outcome != core.NotAttempted {
			t.Errorf("event %d is %v (%v)", i, r.Outcome, r.Err)
		}
	}
	if n := s.requests("SendMessageBatch"); n != 4 {
		t.Errorf("%d requests, want one to the queue that asks for a pause and three to the other", n)
	}
}

// An outage ends the call: each further request would wait for its time-out.
func TestNoAnswerEndsTheCall(t *testing.T) {
	t.Parallel()
	s := newServer(t, "orders")
	s.on(func(*batch) reaction { return reaction{cut: true} })
	results := newSink(t, s.http.URL, Config{Queue: "orders", Concurrency: 1}).Deliver(t.Context(), several(50))
	for i, r := range results {
		if want := map[bool]core.Outcome{true: core.Unknown, false: core.NotAttempted}[i < 10]; r.Outcome != want {
			t.Errorf("event %d is %v (%v), want %v", i, r.Outcome, r.Err, want)
		}
	}
	s.http.Listener.Close() //nolint:errcheck // it is gone either way
	s.http.CloseClientConnections()
	r := newSink(t, s.http.URL, Config{Queue: "orders"}).Deliver(t.Context(), several(1))[0]
	if r.Outcome != core.Unavailable {
		t.Errorf("without a server: %v (%v)", r.Outcome, r.Err)
	}
}

// A handshake that doesn't end has sent no request.
func TestATimeOutBeforeTheRequestIsWrittenIsUnavailable(t *testing.T) {
	t.Parallel()
	s := newServer(t, "orders") // speaks no TLS
	s.http.Config.Handler = http.NotFoundHandler()
	r := newSink(t, strings.Replace(s.http.URL, "http:", "https:", 1), Config{Queue: "https://sqs/1/orders", RequestTimeout: minRequestTimeout}).
		Deliver(t.Context(), several(1))[0]
	if r.Outcome != core.Unavailable {
		t.Errorf("%v (%v)", r.Outcome, r.Err)
	}
}

func TestWithoutCredentialsNothingIsAvailable(t *testing.T) {
	t.Parallel()
	s := newServer(t, "orders")
	cfg := awsConfig(s.http.URL)
	cfg.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{}, errors.New("nobody is logged in")
	})
	sink, err := New(cfg, Config{Queue: "orders"})
	if err != nil {
		t.Fatal(err)
	}
	if r := sink.Deliver(t.Context(), several(1))[0]; r.Outcome != core.Unavailable {
		t.Errorf("%v (%v)", r.Outcome, r.Err)
	}
	if err := sink.Check(t.Context()); err == nil {
		t.Error("Check found nothing")
	}
}
