package mail_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gooutbox/outbox/core"
	mailsink "github.com/gooutbox/outbox/sink/mail"
	"github.com/gooutbox/outbox/sink/mail/internal/ledgermodel"
)

// scripted is a transport that answers by address.
type scripted struct {
	mu     sync.Mutex
	answer func(address string) core.Result
	sent   []mailsink.Envelope
	before func(context.Context)
}

func (s *scripted) Send(ctx context.Context, e mailsink.Envelope) []core.Result {
	s.mu.Lock()
	s.sent = append(s.sent, e)
	before, answer := s.before, s.answer
	s.mu.Unlock()
	if before != nil {
		before(ctx)
	}
	var all []core.Result
	for _, r := range e.Recipients {
		one := core.Result{Outcome: core.Delivered, Receipt: "id-" + r}
		if answer != nil {
			one = answer(r)
		}
		all = append(all, one)
	}
	return all
}

func (s *scripted) Close(context.Context) error { return nil }

type kit struct {
	t         *testing.T
	transport *scripted
	ledger    *ledgermodel.Ledger
	sink      *mailsink.Sink
}

func newKit(t *testing.T, change ...func(*mailsink.Config)) *kit {
	k := &kit{t: t, transport: &scripted{}, ledger: ledgermodel.New()}
	k.sink = k.open(change...)
	return k
}

// open makes another sink on the same ledger and transport, as another process
// has one.
func (k *kit) open(change ...func(*mailsink.Config)) *mailsink.Sink {
	cfg := mailsink.Config{Transport: k.transport, Ledger: k.ledger, From: "Shop <shop@example.org>"}
	for _, c := range change {
		c(&cfg)
	}
	s, err := mailsink.New(cfg)
	require.NoError(k.t, err)
	return s
}

func leaseOf(t *testing.T, id string, m mailsink.Message) core.Lease {
	t.Helper()
	job, err := mailsink.NewJob("mail", m)
	require.NoError(t, err)
	job.ID, job.OccurredAt, job.CorrelationID = id, time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC), "process"
	return core.Lease{Event: job.Event, Attempt: 1}
}

func raw(to ...string) mailsink.Message {
	return mailsink.Message{To: to, Subject: "s", Text: "t"}
}

func (k *kit) deliver(l core.Lease) core.Result {
	k.t.Helper()
	results := k.sink.Deliver(k.t.Context(), []core.Lease{l})
	require.Len(k.t, results, 1)
	return results[0]
}

func (k *kit) record(id string) mailsink.Record {
	k.t.Helper()
	r, err := k.ledger.Mail(k.t.Context(), id)
	require.NoError(k.t, err)
	return r
}

func steps(r mailsink.Record) []mailsink.StepKind {
	var kinds []mailsink.StepKind
	for _, s := range r.Steps {
		kinds = append(kinds, s.Kind)
	}
	return kinds
}

func TestAMailIsSentOnce(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	l := leaseOf(t, "job-1", raw("a@one.example", "b@two.example"))
	require.NoError(t, k.ledger.Queue(t.Context(), mailsink.Queued{JobID: "job-1", CorrelationID: "process"}))
	require.Equal(t, core.Result{Outcome: core.Delivered, Receipt: "id-a@one.example"}, k.deliver(l))
	l.Redelivered = true
	require.Equal(t, core.Result{Outcome: core.Delivered, Receipt: "id-a@one.example"}, k.deliver(l))
	require.Len(t, k.transport.sent, 1)
	r := k.record("job-1")
	require.Equal(t, mailsink.StateSent, r.State)
	require.Equal(t, []mailsink.StepKind{mailsink.StepQueued, mailsink.StepAttempt, mailsink.StepSent}, steps(r))
	events, err := k.ledger.EventsOf(t.Context(), "process")
	require.NoError(t, err)
	require.Len(t, events, 3)
}

func TestARetryGoesToThoseWhoHaveNotAcceptedYet(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	k.transport.answer = func(address string) core.Result {
		switch address {
		case "full@one.example":
			return core.Result{Outcome: core.Refused, Err: errors.New("full"), RetryAfter: time.Minute}
		case "nobody@one.example":
			return core.Result{Outcome: core.Rejected, Err: errors.New("nobody")}
		}
		return core.Result{Outcome: core.Delivered, Receipt: "first"}
	}
	l := leaseOf(t, "job-1", raw("ok@one.example", "full@one.example", "nobody@one.example"))
	got := k.deliver(l)
	require.Equal(t, core.Refused, got.Outcome)
	require.Equal(t, time.Minute, got.RetryAfter)

	k.transport.answer = nil
	l.Attempt = 2
	got = k.deliver(l)
	require.Equal(t, core.Rejected, got.Outcome, "one recipient never got it: the job says so")
	require.Equal(t, []string{"full@one.example"}, k.transport.sent[1].Recipients)
	require.Equal(t, k.transport.sent[0].Message, k.transport.sent[1].Message)
	r := k.record("job-1")
	require.Equal(t, mailsink.StateRefused, r.State)
	require.Equal(t, []mailsink.StepKind{mailsink.StepAttempt, mailsink.StepRetry, mailsink.StepAttempt, mailsink.StepRefused}, steps(r))
	require.False(t, r.Steps[2].HashChanged)
}

func TestOfTwoWorkersOneSends(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	sending, goOn := make(chan struct{}), make(chan struct{})
	k.transport.before = func(context.Context) { close(sending); <-goOn }
	l := leaseOf(t, "job-1", raw("a@one.example"))
	first := make(chan core.Result)
	go func() { first <- k.sink.Deliver(context.Background(), []core.Lease{l})[0] }()
	<-sending
	other := k.open().Deliver(t.Context(), []core.Lease{l})[0]
	require.Equal(t, core.Refused, other.Outcome)
	require.ErrorContains(t, other.Err, "another worker is sending")
	require.Positive(t, other.RetryAfter)
	close(goOn)
	require.Equal(t, core.Delivered, (<-first).Outcome)
	require.Len(t, k.transport.sent, 1)
}

// TestAWorkerThatDiedLeavesAnUnknownMail has a worker freeze while it sends, until
// its reservation has ended.
func TestAWorkerThatDiedLeavesAnUnknownMail(t *testing.T) {
	t.Parallel()
	for _, policy := range []mailsink.UnknownPolicy{mailsink.Hold, mailsink.Resend} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				k := newKit(t)
				l := leaseOf(t, "job-1", raw("a@one.example"))
				frozen := make(chan struct{})
				k.transport.before = func(context.Context) { <-frozen }
				late := make(chan core.Result, 1)
				go func() { late <- k.sink.Deliver(context.Background(), []core.Lease{l})[0] }()
				synctest.Wait()
				time.Sleep(time.Hour)
				k.transport.mu.Lock()
				k.transport.before = nil
				k.transport.mu.Unlock()

				l.Redelivered = true
				other := k.open(func(c *mailsink.Config) { c.OnUnknown = policy })
				got := other.Deliver(t.Context(), []core.Lease{l})[0]
				if policy == mailsink.Hold {
					require.Equal(t, core.Unknown, got.Outcome)
					require.Len(t, k.transport.sent, 1, "not sent again")
					require.True(t, core.CapabilitiesOf(other).NoRepeat)
					reserved, err := k.ledger.Reserved(t.Context(), []string{"job-1", "job-2"})
					require.NoError(t, err)
					require.True(t, reserved["job-1"])
					require.False(t, reserved["job-2"])
				} else {
					require.Equal(t, core.Delivered, got.Outcome)
					require.Len(t, k.transport.sent, 2)
					require.False(t, core.CapabilitiesOf(other).NoRepeat)
					require.Equal(t, []mailsink.StepKind{
						mailsink.StepAttempt, mailsink.StepUnknown, mailsink.StepRedelivered, mailsink.StepAttempt, mailsink.StepSent,
					}, steps(k.record("job-1")))
				}
				close(frozen) // it wakes up, and tells the truth
				require.Equal(t, core.Delivered, (<-late).Outcome)
				require.Equal(t, mailsink.StateSent, k.record("job-1").State)
			})
		})
	}
}

func TestAPersonDecidesAboutAnUnknownMail(t *testing.T) {
	t.Parallel()
	for _, decision := range []mailsink.Decision{mailsink.DecideSent, mailsink.DecideResend} {
		k := newKit(t)
		k.transport.answer = func(string) core.Result { return core.Result{Outcome: core.Unknown, Err: errors.New("lost")} }
		l := leaseOf(t, "job-1", raw("a@one.example"))
		require.Equal(t, core.Unknown, k.deliver(l).Outcome)
		require.Equal(t, core.Unknown, k.deliver(l).Outcome)
		require.Len(t, k.transport.sent, 1)
		_, err := k.ledger.Resolve(t.Context(), mailsink.Resolution{JobID: "job-1", Decision: decision, By: "ada", Why: "asked"})
		require.NoError(t, err)
		k.transport.answer = nil
		require.Equal(t, core.Delivered, k.deliver(l).Outcome)
		want := 1
		if decision == mailsink.DecideResend {
			want = 2
		}
		require.Len(t, k.transport.sent, want)
		require.Equal(t, mailsink.StateSent, k.record("job-1").State)
	}
}

// suppressions is a list.
type suppressions map[string]mailsink.SuppressionReason

func (s suppressions) Suppressed(_ context.Context, addresses []string) (map[string]mailsink.Suppression, error) {
	found := map[string]mailsink.Suppression{}
	for _, a := range addresses {
		if reason := s[mailsink.SuppressionKey(a)]; reason == "broken" {
			return nil, errors.New("the list doesn't answer")
		} else if reason != "" {
			found[a] = mailsink.Suppression{Address: a, Reason: reason}
		}
	}
	return found, nil
}

func TestSuppressedAddressesAreNotSentToAndAudited(t *testing.T) {
	t.Parallel()
	k := newKit(t, func(c *mailsink.Config) {
		c.Suppressions = suppressions{"gone@one.example": mailsink.SuppressBounce, "away@one.example": "broken"}
	})
	got := k.deliver(leaseOf(t, "job-1", raw("Gone@one.example", "ok@one.example")))
	require.Equal(t, core.Rejected, got.Outcome)
	require.ErrorContains(t, got.Err, "1 suppressed")
	require.Equal(t, []string{"ok@one.example"}, k.transport.sent[0].Recipients)
	require.Equal(t, []mailsink.Recipient{
		{Address: "Gone@one.example", State: mailsink.RecipientSuppressed, Detail: "bounce"},
		{Address: "ok@one.example", State: mailsink.RecipientAccepted},
	}, k.record("job-1").Recipients)

	require.Equal(t, core.Rejected, k.deliver(leaseOf(t, "job-2", raw("gone@one.example"))).Outcome)
	require.Len(t, k.transport.sent, 1)

	require.Equal(t, core.Unavailable, k.deliver(leaseOf(t, "job-3", raw("away@one.example"))).Outcome)
	_, err := k.ledger.Mail(t.Context(), "job-3")
	require.ErrorIs(t, err, mailsink.ErrNoMail, "nothing was begun")
}

// pauses is a queue's.
type pauses []core.Pause

func (p pauses) Pauses(context.Context) ([]core.Pause, error) { return p, nil }

func TestPausedDomainsAreSpared(t *testing.T) {
	t.Parallel()
	target := core.PauseTarget{Scope: core.PauseDomain, Name: "one.example"}
	k := newKit(t, func(c *mailsink.Config) {
		c.Pauses = pauses{{PauseTarget: target}, {PauseTarget: core.PauseTarget{Scope: core.PauseTenant, Name: "two.example"}}}
	})
	for _, id := range []string{"job-1", "job-2"} {
		got := k.deliver(leaseOf(t, id, map[string]mailsink.Message{
			"job-1": raw("a@one.example", "b@one.example"), "job-2": raw("a@one.example", "b@two.example"),
		}[id]))
		require.Equal(t, core.Throttled, got.Outcome)
		require.Equal(t, target, got.Throttles)
		require.Positive(t, got.RetryAfter)
	}
	require.Len(t, k.transport.sent, 1)
	require.Equal(t, []string{"b@two.example"}, k.transport.sent[0].Recipients)
	require.Equal(t, mailsink.StateQueued, k.record("job-2").State)
}

func TestALostAnswerOfTheLedgerMakesNoMailUnknown(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	lost := errors.New("the answer was lost")
	k.ledger.Fail(func(string) error { return nil }, func(method string) error {
		if method == "Reserve" {
			return lost
		}
		return nil
	})
	l := leaseOf(t, "job-1", raw("a@one.example"))
	got := k.deliver(l)
	require.Equal(t, core.Unavailable, got.Outcome)
	require.ErrorIs(t, got.Err, lost)
	require.Empty(t, k.transport.sent)
	require.Equal(t, mailsink.StateReserved, k.record("job-1").State, "it was written")
	none := func(string) error { return nil }
	k.ledger.Fail(none, none)
	require.Equal(t, core.Delivered, k.deliver(l).Outcome, "nothing had been sent under it")
	require.Len(t, k.transport.sent, 1)
}

func TestFinishIsWrittenAgainAfterAnError(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	fails := 3
	k.ledger.Fail(func(method string) error {
		if method == "Finish" && fails > 0 {
			fails--
			return errors.New("away")
		}
		return nil
	}, func(string) error { return nil })
	require.Equal(t, core.Delivered, k.deliver(leaseOf(t, "job-1", raw("a@one.example"))).Outcome)
	require.Equal(t, mailsink.StateSent, k.record("job-1").State)
}

func TestATransportThatBreaksItsContractLeavesTheMailUnknown(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	k.transport.before = func(context.Context) { panic("boom") }
	require.Equal(t, core.Unknown, k.deliver(leaseOf(t, "job-1", raw("a@one.example"))).Outcome)
	require.Equal(t, mailsink.StateUnknown, k.record("job-1").State)
}

func TestWhatCanNotBeRenderedIsRefusedBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	k := newKit(t)
	l := leaseOf(t, "job-1", mailsink.Message{To: []string{"a@one.example"}, Template: "reset"})
	got := k.deliver(l)
	require.Equal(t, core.Rejected, got.Outcome)
	require.ErrorContains(t, got.Err, "template")
	require.Empty(t, k.transport.sent)
	require.Equal(t, []mailsink.StepKind{mailsink.StepAttempt, mailsink.StepRefused}, steps(k.record("job-1")))

	l.Event.ID, l.Event.Payload = "job-2", []byte(`{"to":["a@one.example"],"subjekt":"s"}`)
	require.Equal(t, core.Rejected, k.deliver(l).Outcome)
	require.Empty(t, k.transport.sent)
}

func TestStepsAreTold(t *testing.T) {
	t.Parallel()
	var told []mailsink.StepKind
	k := newKit(t, func(c *mailsink.Config) {
		c.OnStep = func(s mailsink.Step) { told = append(told, s.Kind) }
	})
	k.deliver(leaseOf(t, "job-1", raw("a@one.example")))
	require.Equal(t, []mailsink.StepKind{mailsink.StepAttempt, mailsink.StepSent}, told)
}
