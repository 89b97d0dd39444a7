package smtp_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/sink/mail/internal/smtpscript"
	"github.com/gooutbox/outbox/sink/mail/smtp"
)

func send(t *testing.T, transport *smtp.Transport) {
	t.Helper()
	result := transport.Send(t.Context(), mailTo("a@one.example"))[0]
	require.Equal(t, core.Delivered, result.Outcome, "%v", result.Err)
}

func TestConnectionsAreUsedAgain(t *testing.T) {
	t.Parallel()
	s := smtpscript.Start(t, nil)
	transport := open(t, s, func(c *smtp.Config) { c.MaxMails = 3 })
	for range 7 {
		send(t, transport)
	}
	require.Equal(t, 3, s.Sessions())
	require.Len(t, s.Bodies(), 7)
	require.NotContains(t, s.Commands(), "RSET", "a mail that was taken leaves nothing to reset")
}

func TestAConnectionThatTheServerClosedIsReplaced(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]map[string][]string{
		"closed": nil,
		"421":    {"MAIL": {"", "421 4.4.2 idle for too long"}},
		"lost":   {"MAIL": {"", smtpscript.Drop}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := smtpscript.Start(t, script)
			transport := open(t, s)
			send(t, transport)
			if name == "closed" {
				s.CloseSessions()
			}
			send(t, transport)
			require.Len(t, s.Bodies(), 2, "each mail once")
			require.Equal(t, 2, s.Sessions())
		})
	}
}

func TestAFreshConnectionIsNotTriedTwice(t *testing.T) {
	t.Parallel()
	s := smtpscript.Start(t, map[string][]string{"MAIL": {"421 no", "421 no"}})
	transport := open(t, s)
	require.Equal(t, core.Unavailable, transport.Send(t.Context(), mailTo("a@one.example"))[0].Outcome)
	require.Equal(t, 1, s.Sessions())
}

func TestAnAbortedMailLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	s := smtpscript.Start(t, map[string][]string{"RCPT": {"550 5.1.1 nobody"}})
	transport := open(t, s)
	require.Equal(t, core.Rejected, transport.Send(t.Context(), mailTo("nobody@one.example"))[0].Outcome)
	send(t, transport)
	require.Equal(t, 1, s.Sessions())
	require.Contains(t, s.Commands(), "RSET")
	require.Equal(t, []string{"a@one.example"}, s.Bodies()[0].To)
}

func TestNoMoreConnectionsThanAllowed(t *testing.T) {
	t.Parallel()
	s := smtpscript.Start(t, nil)
	transport := open(t, s, func(c *smtp.Config) { c.MaxConnections = 2 })
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() { transport.Send(t.Context(), mailTo("a@one.example")) })
	}
	wg.Wait()
	require.Len(t, s.Bodies(), 20)
	require.LessOrEqual(t, s.Sessions(), 2)
}

func TestIdleConnectionsAreClosed(t *testing.T) {
	t.Parallel()
	s := smtpscript.Start(t, nil)
	transport := open(t, s, func(c *smtp.Config) { c.IdleTimeout = time.Millisecond })
	send(t, transport)
	require.Eventually(t, func() bool { return slices.Contains(s.Commands(), "QUIT") }, 10*time.Second, time.Millisecond)
	send(t, transport)
	require.Equal(t, 2, s.Sessions())
}

func TestEveryMechanismAuthenticates(t *testing.T) {
	t.Parallel()
	for _, m := range []smtp.Mechanism{smtp.Plain, smtp.Login, smtp.CRAMMD5, smtp.XOAuth2} {
		s := smtpscript.Start(t, nil)
		transport := open(t, s, authenticated, func(c *smtp.Config) { c.Mechanism = m })
		send(t, transport)
		require.Contains(t, s.Commands(), "AUTH "+strings.ToUpper(string(m)))
	}
}

func TestSizeIsAskedBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	s := smtpscript.Start(t, nil)
	s.Offer("SIZE 100")
	transport := open(t, s)
	require.Equal(t, core.Rejected, transport.Send(t.Context(), mailTo("a@one.example"))[0].Outcome)
	require.NotContains(t, strings.Join(s.Commands(), "\n"), "MAIL")
}

func TestAddressesBeyondASCIINeedTheirExtension(t *testing.T) {
	t.Parallel()
	for _, offered := range []bool{false, true} {
		s := smtpscript.Start(t, nil)
		if offered {
			s.Offer("SMTPUTF8")
		}
		transport := open(t, s)
		send(t, transport)
		e := mailTo("grüße@one.example")
		e.SMTPUTF8 = true
		result := transport.Send(t.Context(), e)[0]
		if !offered {
			require.Equal(t, core.Rejected, result.Outcome)
			continue
		}
		require.Equal(t, core.Delivered, result.Outcome, "%v", result.Err)
		require.Equal(t, []string{
			"MAIL FROM:<shop@example.org> BODY=8BITMIME", "MAIL FROM:<shop@example.org> BODY=8BITMIME SMTPUTF8",
		}, slices.DeleteFunc(s.Commands(), func(c string) bool { return !strings.HasPrefix(c, "MAIL") }))
	}
}

func TestConfigurationsThatCanNotWorkAreRefused(t *testing.T) {
	t.Parallel()
	for field, cfg := range map[string]smtp.Config{
		"Host":      {},
		"Port":      {Host: "h", Port: 70000},
		"Security":  {Host: "mail.example.org", Security: smtp.Clear, Username: "u", Password: password},
		"Mechanism": {Host: "h", Mechanism: "ntlm", Username: "u", Password: password},
		"Username":  {Host: "h", Password: password},
		"Password":  {Host: "h", Username: "u"},
		"Hello":     {Host: "h", Hello: "a b"},
	} {
		_, err := smtp.New(cfg)
		require.ErrorContains(t, err, field)
		require.NotContains(t, err.Error(), password)
	}
}
