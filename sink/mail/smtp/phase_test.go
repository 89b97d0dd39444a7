package smtp_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gooutbox/outbox/core"
	mailsink "github.com/gooutbox/outbox/sink/mail"
	"github.com/gooutbox/outbox/sink/mail/internal/smtpscript"
	"github.com/gooutbox/outbox/sink/mail/smtp"
)

func open(t *testing.T, s *smtpscript.Server, change ...func(*smtp.Config)) *smtp.Transport {
	t.Helper()
	cfg := smtp.Config{Host: "127.0.0.1", Port: s.Port, Security: smtp.Clear}
	for _, c := range change {
		c(&cfg)
	}
	transport, err := smtp.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, transport.Close(context.Background())) })
	return transport
}

func mailTo(recipients ...string) mailsink.Envelope {
	return mailsink.Envelope{
		JobID: "job", Sender: "shop@example.org", Recipients: recipients,
		Message: []byte("Subject: s\r\n\r\n" + strings.Repeat("one line of many lines alike\r\n", 1000) + ".\r\n..\r\nend\r\n"),
	}
}

func outcomes(results []core.Result) []core.Outcome {
	var all []core.Outcome
	for _, r := range results {
		all = append(all, r.Outcome)
	}
	return all
}

// password must never be in an error, in no form.
const password = "secret-horse-staple"

func authenticated(c *smtp.Config) { c.Username, c.Password = "shop", password }

func impatient(c *smtp.Config) { c.ConnectTimeout = 200 * time.Millisecond }

// TestThePhaseDecides has a case for each phase at which a server may fail. bodies
// is how many mails the server read to their end.
func TestThePhaseDecides(t *testing.T) {
	t.Parallel()
	twice := func(o core.Outcome) []core.Outcome { return []core.Outcome{o, o} }
	for name, c := range map[string]struct {
		script map[string][]string
		change func(*smtp.Config)
		limit  time.Duration
		want   []core.Outcome
		bodies int
	}{
		"nothing":                 {want: twice(core.Delivered), bodies: 1},
		"greeting 421":            {script: map[string][]string{"GREET": {"421 busy"}}, want: twice(core.Unavailable)},
		"greeting 554":            {script: map[string][]string{"GREET": {"554 go away"}}, want: twice(core.Unavailable)},
		"slow banner":             {script: map[string][]string{"GREET": {smtpscript.Hang}}, change: impatient, want: twice(core.Unavailable)},
		"greeting dropped":        {script: map[string][]string{"GREET": {smtpscript.Drop}}, want: twice(core.Unavailable)},
		"no STARTTLS":             {change: func(c *smtp.Config) { c.Security = smtp.StartTLS }, want: twice(core.Unavailable)},
		"AUTH refused":            {script: map[string][]string{"AUTH": {"535 5.7.8 c2hvcABzZWNyZXQ= refused"}}, change: authenticated, want: twice(core.Unavailable)},
		"AUTH dropped":            {script: map[string][]string{"AUTH": {smtpscript.Drop}}, change: authenticated, want: twice(core.Unavailable)},
		"AUTH for now":            {script: map[string][]string{"AUTH": {"454 4.7.0 later"}}, change: authenticated, want: twice(core.Unavailable)},
		"MAIL 421":                {script: map[string][]string{"MAIL": {"421 bye"}}, want: twice(core.Unavailable)},
		"MAIL 451":                {script: map[string][]string{"MAIL": {"451 4.3.0 later"}}, want: twice(core.Refused)},
		"MAIL 550":                {script: map[string][]string{"MAIL": {"550 5.7.1 not you"}}, want: twice(core.Rejected)},
		"MAIL 530":                {script: map[string][]string{"MAIL": {"530 5.7.0 authenticate"}}, want: twice(core.Unavailable)},
		"MAIL dropped":            {script: map[string][]string{"MAIL": {smtpscript.Drop}}, want: twice(core.Unavailable)},
		"RCPT mixed":              {script: map[string][]string{"RCPT": {"550 5.1.1 nobody", ""}}, want: []core.Outcome{core.Rejected, core.Delivered}, bodies: 1},
		"RCPT mixed, the second":  {script: map[string][]string{"RCPT": {"", "452 4.2.2 full"}}, want: []core.Outcome{core.Delivered, core.Refused}, bodies: 1},
		"RCPT all refused":        {script: map[string][]string{"RCPT": {"450 4.2.1 busy", "550 5.1.1 nobody"}}, want: []core.Outcome{core.Refused, core.Rejected}},
		"RCPT too many":           {script: map[string][]string{"RCPT": {"", "452 4.5.3 too many recipients, rate limit"}}, want: []core.Outcome{core.Delivered, core.Refused}, bodies: 1},
		"RCPT 421":                {script: map[string][]string{"RCPT": {"550 5.1.1 nobody", "421 bye"}}, want: []core.Outcome{core.Rejected, core.Unavailable}},
		"RCPT dropped":            {script: map[string][]string{"RCPT": {"", smtpscript.Drop}}, want: twice(core.Unavailable)},
		"DATA 451":                {script: map[string][]string{"DATA": {"451 later"}}, want: twice(core.Refused)},
		"DATA 554":                {script: map[string][]string{"DATA": {"554 no"}}, want: twice(core.Rejected)},
		"DATA no 354":             {script: map[string][]string{"DATA": {"250 what"}}, want: twice(core.Unavailable)},
		"dropped before the dot":  {script: map[string][]string{"DATA": {smtpscript.Drop}}, want: twice(core.Unavailable)},
		"451 after the dot":       {script: map[string][]string{"DOT": {"451 4.3.0 later"}}, want: twice(core.Refused), bodies: 1},
		"421 after the dot":       {script: map[string][]string{"DOT": {"421 4.3.0 shutting down"}}, want: twice(core.Unavailable), bodies: 1},
		"550 after the dot":       {script: map[string][]string{"DOT": {"550 5.7.1 spam"}}, want: twice(core.Rejected), bodies: 1},
		"dropped after the dot":   {script: map[string][]string{"DOT": {smtpscript.Drop}}, want: twice(core.Unknown), bodies: 1},
		"nonsense after the dot":  {script: map[string][]string{"DOT": {"hello?"}}, want: twice(core.Unknown), bodies: 1},
		"354 after the dot":       {script: map[string][]string{"DOT": {"354 more?"}}, want: twice(core.Unknown), bodies: 1},
		"250 after the time-out":  {script: map[string][]string{"DOT": {smtpscript.Late}}, limit: 300 * time.Millisecond, want: twice(core.Unknown), bodies: 1},
		"silence at DATA":         {script: map[string][]string{"DATA": {smtpscript.Hang}}, limit: 300 * time.Millisecond, want: twice(core.Unavailable)},
		"greylisted at RCPT":      {script: map[string][]string{"RCPT": {"451 4.7.1 Greylisted, come back in 90 seconds", ""}}, want: []core.Outcome{core.Refused, core.Delivered}, bodies: 1},
		"throttled at RCPT":       {script: map[string][]string{"RCPT": {"", "450 4.7.1 rate limit exceeded"}}, want: []core.Outcome{core.Delivered, core.Throttled}, bodies: 1},
		"throttled after the dot": {script: map[string][]string{"DOT": {"451 4.7.28 slow down"}}, want: twice(core.Throttled), bodies: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := smtpscript.Start(t, c.script)
			change := c.change
			if change == nil {
				change = func(*smtp.Config) {}
			}
			transport := open(t, s, change)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			if c.limit > 0 {
				ctx, cancel = context.WithTimeout(ctx, c.limit)
				defer cancel()
			}
			results := transport.Send(ctx, mailTo("a@one.example", "b@two.example"))
			require.Equal(t, c.want, outcomes(results), "%v", results)
			require.Len(t, s.Bodies(), c.bodies)
			for _, r := range results {
				if r.Outcome != core.Delivered {
					require.Error(t, r.Err)
					require.NotContains(t, r.Err.Error(), password)
					require.NotContains(t, r.Err.Error(), "c2hvcABz", "what a server says of credentials")
				}
			}
			if c.limit > 0 && c.script["DOT"] != nil {
				s.Release()
			}
			// Whatever happened, the next mail goes through, and once.
			next := transport.Send(t.Context(), mailTo("c@one.example"))
			if name == "no STARTTLS" {
				require.Equal(t, core.Unavailable, next[0].Outcome)
				return
			}
			require.Equal(t, core.Delivered, next[0].Outcome, "%v", next[0].Err)
			require.Len(t, s.Bodies(), c.bodies+1)
			require.Equal(t, []string{"c@one.example"}, s.Bodies()[c.bodies].To)
		})
	}
}

func TestALargeMailIsDroppedInItsMiddle(t *testing.T) {
	t.Parallel()
	s := smtpscript.Start(t, map[string][]string{"DATA": {smtpscript.DropInside}})
	e := mailTo("a@one.example")
	for len(e.Message) < 16<<20 { // more than any buffer on the way
		e.Message = append(e.Message, e.Message...)
	}
	results := open(t, s).Send(t.Context(), e)
	require.Equal(t, core.Unavailable, results[0].Outcome, "%v", results[0].Err)
	require.Empty(t, s.Bodies())
}

func TestWhatIsReadIsWhatWasSent(t *testing.T) {
	t.Parallel()
	s := smtpscript.Start(t, nil)
	e := mailTo("a@one.example")
	results := open(t, s).Send(t.Context(), e)
	require.Equal(t, core.Result{Outcome: core.Delivered, Receipt: "2.0.0 queued as 7F3A"}, results[0])
	require.Equal(t, smtpscript.Body{
		From: "shop@example.org", To: []string{"a@one.example"}, Text: strings.ReplaceAll(string(e.Message), "\r\n", "\n"),
	}, s.Bodies()[0])
}

func TestHowLongToWaitIsRead(t *testing.T) {
	t.Parallel()
	for reply, want := range map[string]core.Result{
		"451 4.7.1 Greylisted, come back in 90 seconds": {Outcome: core.Refused, RetryAfter: 90 * time.Second},
		"450 greylisting in effect":                     {Outcome: core.Refused, RetryAfter: 5 * time.Minute},
		"450 4.7.1 rate limit, retry in 2 minutes": {
			Outcome: core.Throttled, RetryAfter: 2 * time.Minute, Throttles: core.PauseTarget{Scope: core.PauseDomain, Name: "one.example"},
		},
		"450 throttled, 99999 hours": {
			Outcome: core.Throttled, RetryAfter: 6 * time.Hour, Throttles: core.PauseTarget{Scope: core.PauseDomain, Name: "one.example"},
		},
	} {
		s := smtpscript.Start(t, map[string][]string{"RCPT": {reply}})
		got := open(t, s).Send(t.Context(), mailTo("a@one.example"))[0]
		require.Error(t, got.Err)
		got.Err = nil
		require.Equal(t, want, got, reply)
	}
}
