package smtp_test

import (
	"context"
	"encoding/base64"
	"io"
	"mime"
	"mime/multipart"
	"net"
	"net/mail"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
	mailsink "github.com/gooutbox/outbox/sink/mail"
	"github.com/gooutbox/outbox/sink/mail/internal/smtpscript"
	"github.com/gooutbox/outbox/sink/mail/memory"
	"github.com/gooutbox/outbox/sink/mail/smtp"
	"github.com/gooutbox/outbox/sink/sinktest"
)

// mailing is the mail sink for events that hold no mail: each becomes one, to its
// key, with its id as subject and its payload as a file. A call takes one.
type mailing struct{ *mailsink.Sink }

func (m mailing) Deliver(ctx context.Context, leases []core.Lease) []core.Result {
	leases = slices.Clone(leases)
	for i := range leases {
		e := leases[i].Event
		job, err := mailsink.NewJob("mail", mailsink.Message{
			To: []string{e.AggregateID + "@example.org"}, Subject: e.ID + "-", Text: "t",
			Attachments: []mailsink.Attachment{{Name: "payload", Content: append([]byte(nil), e.Payload...)}},
		})
		if err != nil {
			job.Event = core.Event{Payload: []byte("{}"), ContentType: mailsink.ContentType}
		}
		job.ID, job.OccurredAt = e.ID, e.OccurredAt
		leases[i].Event = job.Event
	}
	return m.Sink.Deliver(ctx, leases)
}

func TestConformance(t *testing.T) {
	t.Parallel()
	sinktest.Run(t, sinktest.Harness{New: func(t testing.TB) sinktest.Destination {
		s := smtpscript.Start(t, nil)
		network := servicetest.NewProxy(t, net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port)))
		_, port, err := net.SplitHostPort(network.Address())
		require.NoError(t, err)
		through, err := strconv.Atoi(port)
		require.NoError(t, err)
		ledger := memory.NewLedger()
		return sinktest.Destination{
			Unordered: true,
			Open: func(t testing.TB) core.Sink {
				transport, err := smtp.New(smtp.Config{Host: "127.0.0.1", Port: through, Security: smtp.Clear})
				require.NoError(t, err)
				sink, err := mailsink.New(mailsink.Config{
					Transport: transport, Ledger: ledger, From: "shop@example.org", MaxBytes: 100_000, OnUnknown: mailsink.Resend,
				})
				require.NoError(t, err)
				return mailing{sink}
			},
			Received: func(t testing.TB) []sinktest.Message { return received(t, s) },
			TooLarge: 200_000,
			Spoil:    spoilt(), Reject: spoilt(),
			Refuse: func(testing.TB) (func(*core.Event), func()) {
				s.Refuse("busy@example.org", true)
				return func(e *core.Event) { e.AggregateID = "busy" }, func() { s.Refuse("busy@example.org", false) }
			},
			Cut: func(testing.TB) func() {
				network.To("127.0.0.1:1") // nobody listens there
				network.Cut()
				return func() { network.To(net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port))) }
			},
			Steps: []sinktest.Step{
				{Name: "greeting", Break: breaking(s, map[sinktest.When][2]string{
					sinktest.Before: {"GREET", smtpscript.Drop}, sinktest.During: {"GREET", "421 busy"}, sinktest.After: {"EHLO", smtpscript.Drop},
				})},
				{Name: "recipient", Break: breaking(s, map[sinktest.When][2]string{
					sinktest.Before: {"RCPT", smtpscript.Drop}, sinktest.During: {"RCPT", "421 busy"}, sinktest.After: {"DATA", smtpscript.Drop},
				})},
				{Name: "mail", Stores: true, Repeats: true, Break: breaking(s, map[sinktest.When][2]string{
					sinktest.Before: {"DATA", "421 busy"}, sinktest.During: {"DATA", smtpscript.Drop}, sinktest.After: {"DOT", smtpscript.Drop},
				})},
			},
		}
	}})
}

// spoilt are events that make no mail.
func spoilt() []func(*core.Event) {
	return []func(*core.Event){
		func(e *core.Event) { e.AggregateID = "no address" },
		func(e *core.Event) { e.ID = "" },
		func(e *core.Event) { e.Payload = make([]byte, 200_000) },
	}
}

// breaking lets the next answer to a verb be another.
func breaking(s *smtpscript.Server, by map[sinktest.When][2]string) func(testing.TB, sinktest.When) func() bool {
	return func(_ testing.TB, when sinktest.When) func() bool {
		fault := by[when]
		if fault[0] == "GREET" || fault[0] == "EHLO" {
			s.CloseSessions() // the next mail needs a connection
		}
		return s.Next(fault[0], fault[1])
	}
}

// received reads the mails back.
func received(t testing.TB, s *smtpscript.Server) []sinktest.Message {
	var all []sinktest.Message
	for _, body := range s.Bodies() {
		m, err := mail.ReadMessage(strings.NewReader(body.Text))
		require.NoError(t, err)
		_, p, err := mime.ParseMediaType(m.Header.Get("Content-Type"))
		require.NoError(t, err)
		parts := multipart.NewReader(m.Body, p["boundary"])
		_, err = parts.NextRawPart()
		require.NoError(t, err)
		file, err := parts.NextRawPart()
		require.NoError(t, err)
		payload, err := io.ReadAll(base64.NewDecoder(base64.StdEncoding, file))
		require.NoError(t, err)
		all = append(all, sinktest.Message{
			ID: strings.TrimSuffix(m.Header.Get("Subject"), "-"), Key: strings.TrimSuffix(body.To[0], "@example.org"), Payload: payload,
		})
	}
	return all
}
