package mailtest

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gooutbox/outbox/sink/mail"
)

// Races is how many mails two workers race for.
const Races = 1000

// long is a reservation that doesn't end during a test, short one that does.
const (
	long  = 10 * time.Minute
	short = 30 * time.Millisecond
)

// RunLedger runs the suite. Each test gets an empty ledger of its own.
func RunLedger(t *testing.T, newLedger func(t *testing.T) mail.Ledger) {
	t.Helper()
	for _, c := range []struct {
		name string
		run  func(*testing.T, mail.Ledger)
	}{
		{"a mail goes from queued to sent with each step once", sent},
		{"of two that race for a mail one sends", races},
		{"a sender that died leaves the mail unknown", died},
		{"a mail of unknown outcome is taken where a policy says so", taken},
		{"an attempt that was refused for now is followed by another", retried},
		{"a mail that was refused is sent again on request", refused},
		{"a reservation that was lost is told, and audited", lost},
		{"other bytes of a later attempt are audited", changed},
		{"a person resolves a mail of unknown outcome", resolved},
		{"a mail is discarded", discarded},
		{"what can't be resolved is refused", notResolvable},
		{"only what may have been sent is reserved", reserved},
		{"a notification of a provider is added once", feedback},
		{"a business process is read as a whole", correlated},
		{"many mails at once don't disturb each other", many},
		{"details are cut", details},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			c.run(t, newLedger(t))
		})
	}
}

// request asks for a mail to one recipient, under a token.
func request(id, token string, recipients ...string) mail.ReserveRequest {
	if len(recipients) == 0 {
		recipients = []string{"ada@example.org"}
	}
	return mail.ReserveRequest{
		JobID: id, Token: token, For: long, Attempt: 1, Recipients: recipients, Hash: "h1", MessageID: id + "@example.org",
		CorrelationID: "c-" + id, Tenant: "shop", Sink: "mail", Template: "welcome",
	}
}

func reserve(t *testing.T, l mail.Ledger, req mail.ReserveRequest, want mail.Verdict) mail.Reservation {
	t.Helper()
	found, err := l.Reserve(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, want, found.Verdict, "the verdict of %s under %s", req.JobID, req.Token)
	return found
}

// finish is the end of an attempt in which each recipient came to a state.
func finish(id, token string, state mail.State, kind mail.StepKind, recipients ...mail.Recipient) mail.Finish {
	return mail.Finish{
		JobID: id, Token: token, State: state, Recipients: recipients, ProviderID: "p-" + id,
		Step: mail.Step{ID: mail.StepID(kind, token), Kind: kind, Attempt: 1},
	}
}

func ada(state mail.RecipientState) mail.Recipient {
	return mail.Recipient{Address: "ada@example.org", State: state}
}

func kinds(t *testing.T, l mail.Ledger, id string) []mail.StepKind {
	t.Helper()
	r := record(t, l, id)
	all := make([]mail.StepKind, len(r.Steps))
	ids := map[string]bool{}
	for i, s := range r.Steps {
		all[i] = s.Kind
		require.False(t, ids[s.ID], "a step is there twice: %s", s.ID)
		ids[s.ID] = true
		require.WithinDuration(t, time.Now(), s.At, time.Minute)
		require.Equal(t, id, s.JobID)
	}
	return all
}

func record(t *testing.T, l mail.Ledger, id string) mail.Record {
	t.Helper()
	r, err := l.Mail(t.Context(), id)
	require.NoError(t, err)
	return r
}

func sent(t *testing.T, l mail.Ledger) {
	_, err := l.Mail(t.Context(), "m")
	require.ErrorIs(t, err, mail.ErrNoMail)
	queued := mail.Queued{JobID: "m", CorrelationID: "c-m", Tenant: "shop", Sink: "mail", Template: "welcome"}
	require.NoError(t, l.Queue(t.Context(), queued))
	require.NoError(t, l.Queue(t.Context(), queued))
	r := record(t, l, "m")
	require.Equal(t, mail.StateQueued, r.State)
	require.Equal(t, "welcome", r.Template)
	require.Zero(t, r.ExpireAt)

	found := reserve(t, l, request("m", "t1"), mail.VerdictReserved)
	require.Equal(t, []mail.Recipient{ada(mail.RecipientPending)}, found.Record.Recipients)
	require.Equal(t, mail.StateReserved, found.Record.State)
	reserve(t, l, request("m", "t1"), mail.VerdictReserved) // an answer that was lost
	other := reserve(t, l, request("m", "t2"), mail.VerdictInFlight)
	require.Greater(t, other.RetryIn, long/2)
	require.LessOrEqual(t, other.RetryIn, long)

	end := finish("m", "t1", mail.StateSent, mail.StepSent, ada(mail.RecipientAccepted))
	require.NoError(t, l.Finish(t.Context(), end))
	require.NoError(t, l.Finish(t.Context(), end))
	require.NoError(t, l.Queue(t.Context(), queued))
	reserve(t, l, request("m", "t3"), mail.VerdictDone)
	require.Equal(t, []mail.StepKind{mail.StepQueued, mail.StepAttempt, mail.StepSent}, kinds(t, l, "m"))
	r = record(t, l, "m")
	require.Equal(t, mail.StateSent, r.State)
	require.Equal(t, "p-m", r.ProviderID)
	require.Equal(t, "m@example.org", r.MessageID)
	require.Equal(t, []string{"c-m", "shop", "mail"}, []string{r.CorrelationID, r.Tenant, r.Sink})
	require.Equal(t, []mail.Recipient{ada(mail.RecipientAccepted)}, r.Recipients)
	require.Greater(t, time.Until(r.ExpireAt), time.Hour)
}

func races(t *testing.T, l mail.Ledger) {
	var all sync.WaitGroup
	for lane := range 20 {
		all.Go(func() {
			for i := lane; i < Races && !t.Failed(); i += 20 {
				race(t, l, fmt.Sprintf("m-%d", i))
			}
		})
	}
	all.Wait()
}

func race(t *testing.T, l mail.Ledger, id string) {
	t.Helper()
	var reservations atomic.Int32
	var both sync.WaitGroup
	for w := range 2 {
		both.Go(func() {
			found, err := l.Reserve(t.Context(), request(id, fmt.Sprintf("t-%d", w)))
			switch {
			case err != nil:
				t.Errorf("reserving: %v", err)
			case found.Verdict == mail.VerdictReserved:
				reservations.Add(1)
			case found.Verdict != mail.VerdictInFlight:
				t.Errorf("%s: verdict %d", id, found.Verdict)
			}
		})
	}
	both.Wait()
	if n := reservations.Load(); n != 1 {
		t.Errorf("%s: %d of two workers may send it", id, n)
	}
}

// lapse makes a reservation, under t1, whose time is over.
func lapse(t *testing.T, l mail.Ledger, id string) {
	t.Helper()
	req := request(id, "t1")
	req.For = short
	reserve(t, l, req, mail.VerdictReserved)
	require.Eventually(t, func() bool {
		all, err := l.Unknown(t.Context(), 100)
		require.NoError(t, err)
		for _, r := range all {
			if r.JobID == id {
				return true
			}
		}
		return false
	}, 10*time.Second, short/3)
}

func died(t *testing.T, l mail.Ledger) {
	lapse(t, l, "m")
	found := reserve(t, l, request("m", "t2"), mail.VerdictUnknown)
	require.Equal(t, mail.StateUnknown, found.Record.State)
	require.Equal(t, []mail.Recipient{ada(mail.RecipientUnknown)}, found.Record.Recipients)
	reserve(t, l, request("m", "t3"), mail.VerdictUnknown)
	require.Equal(t, []mail.StepKind{mail.StepAttempt, mail.StepUnknown}, kinds(t, l, "m"))
	require.Equal(t, mail.StepID(mail.StepUnknown, "t1"), record(t, l, "m").Steps[1].ID)
	require.Zero(t, record(t, l, "m").ExpireAt)

	// It was not dead but slow, and knows better.
	require.NoError(t, l.Finish(t.Context(), finish("m", "t1", mail.StateSent, mail.StepSent, ada(mail.RecipientAccepted))))
	require.Equal(t, mail.StateSent, record(t, l, "m").State)
	all, err := l.Unknown(t.Context(), 10)
	require.NoError(t, err)
	require.Empty(t, all)
}

func taken(t *testing.T, l mail.Ledger) {
	for _, before := range []struct {
		id    string
		found bool
		steps []mail.StepKind
	}{
		{"lapsed", false, []mail.StepKind{mail.StepAttempt, mail.StepUnknown, mail.StepRedelivered, mail.StepAttempt}},
		{"unknown", true, []mail.StepKind{mail.StepAttempt, mail.StepUnknown, mail.StepRedelivered, mail.StepAttempt}},
	} {
		lapse(t, l, before.id)
		if before.found {
			reserve(t, l, request(before.id, "t2"), mail.VerdictUnknown)
		}
		req := request(before.id, "t3")
		req.TakeUnknown, req.Redelivered = true, true
		found := reserve(t, l, req, mail.VerdictReserved)
		require.Equal(t, []mail.Recipient{ada(mail.RecipientPending)}, found.Record.Recipients)
		require.Equal(t, before.steps, kinds(t, l, before.id))
		end := finish(before.id, "t1", mail.StateSent, mail.StepSent, ada(mail.RecipientAccepted))
		require.ErrorIs(t, l.Finish(t.Context(), end), mail.ErrReservationLost)
		require.Equal(t, mail.StateReserved, record(t, l, before.id).State)
	}
}

func retried(t *testing.T, l mail.Ledger) {
	reserve(t, l, request("m", "t1", "ada@example.org", "bob@example.org"), mail.VerdictReserved)
	bob := mail.Recipient{Address: "bob@example.org", State: mail.RecipientPending, Detail: "451 later"}
	require.NoError(t, l.Finish(t.Context(), finish("m", "t1", mail.StateQueued, mail.StepRetry, ada(mail.RecipientAccepted), bob)))
	require.Zero(t, record(t, l, "m").ExpireAt)
	req := request("m", "t2", "ada@example.org", "bob@example.org")
	req.Redelivered, req.Attempt = true, 2
	found := reserve(t, l, req, mail.VerdictReserved)
	require.Equal(t, []mail.Recipient{ada(mail.RecipientAccepted), bob}, found.Record.Recipients)
	require.Equal(t, []mail.StepKind{mail.StepAttempt, mail.StepRetry, mail.StepRedelivered, mail.StepAttempt}, kinds(t, l, "m"))
	require.Equal(t, 2, record(t, l, "m").Steps[3].Attempt)
}

func refused(t *testing.T, l mail.Ledger) {
	reserve(t, l, request("m", "t1", "ada@example.org", "bob@example.org", "eve@example.org"), mail.VerdictReserved)
	bob := mail.Recipient{Address: "bob@example.org", State: mail.RecipientRejected, Detail: "550 unknown"}
	eve := mail.Recipient{Address: "eve@example.org", State: mail.RecipientSuppressed}
	require.NoError(t, l.Finish(t.Context(), finish("m", "t1", mail.StateRefused, mail.StepRefused, ada(mail.RecipientAccepted), bob, eve)))
	require.NotZero(t, record(t, l, "m").ExpireAt)
	found := reserve(t, l, request("m", "t2", "ada@example.org", "bob@example.org", "eve@example.org"), mail.VerdictReserved)
	states := map[string]mail.RecipientState{}
	for _, r := range found.Record.Recipients {
		states[r.Address] = r.State
	}
	require.Equal(t, map[string]mail.RecipientState{
		"ada@example.org": mail.RecipientAccepted, "bob@example.org": mail.RecipientPending, "eve@example.org": mail.RecipientPending,
	}, states)
	require.Zero(t, record(t, l, "m").ExpireAt)
}

func lost(t *testing.T, l mail.Ledger) {
	end := finish("m", "t1", mail.StateSent, mail.StepSent, ada(mail.RecipientAccepted))
	require.ErrorIs(t, l.Finish(t.Context(), end), mail.ErrReservationLost)
	lapse(t, l, "m")
	_, err := l.Resolve(t.Context(), mail.Resolution{JobID: "m", Decision: mail.DecideResend, By: "eve"})
	require.NoError(t, err)
	for range 2 { // the answer to the first may be lost
		require.ErrorIs(t, l.Finish(t.Context(), end), mail.ErrReservationLost)
	}
	require.Equal(t, mail.StateQueued, record(t, l, "m").State)
	require.Equal(t, []mail.StepKind{mail.StepAttempt, mail.StepResolved, mail.StepSent}, kinds(t, l, "m"))
}

func changed(t *testing.T, l mail.Ledger) {
	for i, hash := range []string{"h1", "h1", "h2"} {
		req := request("m", fmt.Sprint("t", i))
		req.Hash = hash
		reserve(t, l, req, mail.VerdictReserved)
		require.NoError(t, l.Finish(t.Context(), finish("m", req.Token, mail.StateQueued, mail.StepRetry, ada(mail.RecipientPending))))
	}
	r := record(t, l, "m")
	require.Equal(t, "h2", r.Hash)
	var got []string
	for _, s := range r.Steps {
		if s.Kind == mail.StepAttempt {
			got = append(got, fmt.Sprint(s.Hash, s.HashChanged))
		}
	}
	require.Equal(t, []string{"h1false", "h1false", "h2true"}, got)
}

func resolved(t *testing.T, l mail.Ledger) {
	for _, c := range []struct {
		id       string
		decision mail.Decision
		found    bool
		state    mail.State
		ada      mail.RecipientState
		next     mail.Verdict
	}{
		{"sent", mail.DecideSent, true, mail.StateSent, mail.RecipientAccepted, mail.VerdictDone},
		{"sent-lapsed", mail.DecideSent, false, mail.StateSent, mail.RecipientAccepted, mail.VerdictDone},
		{"resend", mail.DecideResend, true, mail.StateQueued, mail.RecipientPending, mail.VerdictReserved},
		{"resend-lapsed", mail.DecideResend, false, mail.StateQueued, mail.RecipientPending, mail.VerdictReserved},
	} {
		lapse(t, l, c.id)
		if c.found {
			reserve(t, l, request(c.id, "t2"), mail.VerdictUnknown)
		}
		for range 2 {
			r, err := l.Resolve(t.Context(), mail.Resolution{JobID: c.id, Decision: c.decision, By: "eve", Why: "asked"})
			require.NoError(t, err, c.id)
			require.Equal(t, c.state, r.State, c.id)
			require.Equal(t, []mail.Recipient{ada(c.ada)}, r.Recipients, c.id)
			require.Empty(t, r.Token)
			last := r.Steps[len(r.Steps)-1]
			require.Equal(t, []any{mail.StepResolved, "eve", "asked"}, []any{last.Kind, last.By, last.Detail})
		}
		n := 0
		for _, k := range kinds(t, l, c.id) {
			if k == mail.StepResolved {
				n++
			}
		}
		require.Equal(t, 1, n, c.id)
		reserve(t, l, request(c.id, "t3"), c.next)
	}
}

func discarded(t *testing.T, l mail.Ledger) {
	require.NoError(t, l.Queue(t.Context(), mail.Queued{JobID: "queued"}))
	lapse(t, l, "lapsed")
	for _, id := range []string{"queued", "lapsed"} {
		for range 2 {
			r, err := l.Resolve(t.Context(), mail.Resolution{JobID: id, Decision: mail.DecideDiscard, By: "eve"})
			require.NoError(t, err)
			require.Equal(t, mail.StateDiscarded, r.State)
			require.NotZero(t, r.ExpireAt)
		}
		reserve(t, l, request(id, "t9"), mail.VerdictDone)
	}
}

func notResolvable(t *testing.T, l mail.Ledger) {
	_, err := l.Resolve(t.Context(), mail.Resolution{JobID: "none", Decision: mail.DecideSent, By: "eve"})
	require.ErrorIs(t, err, mail.ErrNoMail)
	reserve(t, l, request("m", "t1"), mail.VerdictReserved)
	decide := func(d mail.Decision) error {
		_, err := l.Resolve(t.Context(), mail.Resolution{JobID: "m", Decision: d, By: "eve"})
		return err
	}
	for _, d := range []mail.Decision{mail.DecideSent, mail.DecideResend, mail.DecideDiscard} {
		require.ErrorIs(t, decide(d), mail.ErrNotResolvable, "while it is being sent")
	}
	require.NoError(t, l.Finish(t.Context(), finish("m", "t1", mail.StateSent, mail.StepSent, ada(mail.RecipientAccepted))))
	for _, d := range []mail.Decision{mail.DecideSent, mail.DecideResend, mail.DecideDiscard} {
		require.ErrorIs(t, decide(d), mail.ErrNotResolvable, "when it was sent")
	}
	require.Error(t, decide("burn"))
	require.Equal(t, []mail.StepKind{mail.StepAttempt, mail.StepSent}, kinds(t, l, "m"))
}

func reserved(t *testing.T, l mail.Ledger) {
	require.NoError(t, l.Queue(t.Context(), mail.Queued{JobID: "queued"}))
	reserve(t, l, request("active", "t1"), mail.VerdictReserved)
	reserve(t, l, request("sent", "t1"), mail.VerdictReserved)
	require.NoError(t, l.Finish(t.Context(), finish("sent", "t1", mail.StateSent, mail.StepSent, ada(mail.RecipientAccepted))))
	reserve(t, l, request("again", "t1"), mail.VerdictReserved)
	require.NoError(t, l.Finish(t.Context(), finish("again", "t1", mail.StateQueued, mail.StepRetry, ada(mail.RecipientPending))))
	lapse(t, l, "unknown")
	reserve(t, l, request("unknown", "t2"), mail.VerdictUnknown)
	found, err := l.Reserved(t.Context(), []string{"queued", "active", "sent", "again", "unknown", "none"})
	require.NoError(t, err)
	for id, want := range map[string]bool{"queued": false, "active": true, "sent": false, "again": false, "unknown": true, "none": false} {
		require.Equal(t, want, found[id], id)
	}
	found, err = l.Reserved(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, found)
}

func feedback(t *testing.T, l mail.Ledger) {
	reserve(t, l, request("m", "t1"), mail.VerdictReserved)
	require.NoError(t, l.Finish(t.Context(), finish("m", "t1", mail.StateSent, mail.StepSent, ada(mail.RecipientAccepted))))
	for range 2 {
		known, err := l.Feedback(t.Context(), mail.Feedback{ID: "n1", ProviderID: "p-m", Kind: mail.StepBounced, Detail: "full"})
		require.NoError(t, err)
		require.True(t, known)
	}
	known, err := l.Feedback(t.Context(), mail.Feedback{ID: "n1", ProviderID: "another", Kind: mail.StepBounced})
	require.NoError(t, err)
	require.False(t, known)
	require.Equal(t, []mail.StepKind{mail.StepAttempt, mail.StepSent, mail.StepBounced}, kinds(t, l, "m"))
	require.Equal(t, mail.StateSent, record(t, l, "m").State)
}

func correlated(t *testing.T, l mail.Ledger) {
	for _, id := range []string{"m1", "m2", "other"} {
		correlation := "order-7"
		if id == "other" {
			correlation = "order-8"
		}
		require.NoError(t, l.Queue(t.Context(), mail.Queued{JobID: id, CorrelationID: correlation}))
		req := request(id, "t1")
		req.CorrelationID = correlation
		reserve(t, l, req, mail.VerdictReserved)
	}
	require.NoError(t, l.Finish(t.Context(), finish("m1", "t1", mail.StateSent, mail.StepSent, ada(mail.RecipientAccepted))))
	found, err := l.StateOf(t.Context(), "order-7")
	require.NoError(t, err)
	require.Len(t, found, 2)
	require.Equal(t, []string{"m1", "m2"}, []string{found[0].JobID, found[1].JobID})
	steps, err := l.EventsOf(t.Context(), "order-7")
	require.NoError(t, err)
	var got []string
	for i, s := range steps {
		got = append(got, s.JobID+" "+string(s.Kind))
		require.True(t, i == 0 || !s.At.Before(steps[i-1].At))
	}
	require.ElementsMatch(t, []string{"m1 queued", "m1 attempt", "m2 queued", "m2 attempt", "m1 sent"}, got)
	for _, none := range []string{"", "order-9"} {
		found, err = l.StateOf(t.Context(), none)
		require.NoError(t, err)
		require.Empty(t, found)
	}
}

func many(t *testing.T, l mail.Ledger) {
	var all sync.WaitGroup
	for lane := range 20 {
		all.Go(func() {
			for i := range 20 {
				id := fmt.Sprintf("m-%d-%d", lane, i)
				found, err := l.Reserve(t.Context(), request(id, "t-"+id, id+"@example.org"))
				if err != nil || found.Verdict != mail.VerdictReserved || found.Record.Recipients[0].Address != id+"@example.org" {
					t.Errorf("%s: %v, %v", id, found, err)
					return
				}
				end := finish(id, "t-"+id, mail.StateSent, mail.StepSent, mail.Recipient{Address: id + "@example.org", State: mail.RecipientAccepted})
				lose := i%5 == 4 // in the same command as those that are in order
				if lose {
					end.Token = "another"
					end.Step.ID = mail.StepID(mail.StepSent, "another")
				}
				if err := l.Finish(t.Context(), end); lose != (err != nil) {
					t.Errorf("finishing %s: %v", id, err)
				}
			}
		})
	}
	all.Wait()
	require.Equal(t, mail.StateSent, record(t, l, "m-7-3").State)
	require.Equal(t, "p-m-7-3", record(t, l, "m-7-3").ProviderID)
	require.Equal(t, mail.StateReserved, record(t, l, "m-7-4").State)
}

func details(t *testing.T, l mail.Ledger) {
	reserve(t, l, request("m", "t1"), mail.VerdictReserved)
	end := finish("m", "t1", mail.StateRefused, mail.StepRefused, mail.Recipient{
		Address: "ada@example.org", State: mail.RecipientRejected, Detail: strings.Repeat("é", mail.MaxDetailBytes),
	})
	end.Step.Detail = "$name " + strings.Repeat("x", mail.MaxDetailBytes)
	require.NoError(t, l.Finish(t.Context(), end))
	r := record(t, l, "m")
	require.Equal(t, strings.Repeat("é", mail.MaxDetailBytes/2), r.Recipients[0].Detail)
	require.Len(t, r.Steps[1].Detail, mail.MaxDetailBytes)
	require.True(t, strings.HasPrefix(r.Steps[1].Detail, "$name "), "it is no expression")
}
