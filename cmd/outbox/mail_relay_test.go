package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
	mailsink "github.com/gooutbox/outbox/sink/mail"
	mongostore "github.com/gooutbox/outbox/store/mongo"
	"github.com/gooutbox/outbox/store/mongo/mailstore"
)

// TestMailsGoOutAndUnknownOnesAreResolved runs the program: indexes, a relay with
// a worker for mails, and the decision about a mail whose worker died.
func TestMailsGoOutAndUnknownOnesAreResolved(t *testing.T) {
	t.Parallel()
	db := servicetest.Database(t)
	out := t.TempDir()
	path := configFile(t, fmt.Sprintf(`store:
  mongodb: {uri: %q, database: %s}
sinks:
  mail:
    type: mail
    from: Shop <shop@example.org>
    templates: %s
    folder: {path: %s}
workers:
  - {sink: mail}
log: {level: warn}
`, servicetest.MongoURL(t), db.Name(), greeting(t, nil), out))
	status, stdout, stderr := outbox(t, "indexes", "-c", path)
	require.Equal(t, exitOK, status, stderr)
	require.Contains(t, stdout, "outbox_mails")

	store, err := mongostore.New(db, mongostore.Config{})
	require.NoError(t, err)
	ledger, err := mailstore.NewLedger(db, mailstore.Config{})
	require.NoError(t, err)
	var receipts []core.Receipt
	require.NoError(t, store.InTransaction(t.Context(), func(ctx context.Context) error {
		var jobs []core.Job
		for _, locale := range []string{"de-AT", "fr"} {
			job, err := mailsink.NewJob("mail", mailsink.Message{
				To: []string{"ada@example.org"}, Template: "greet", Locale: locale, Data: []byte(`{"name":"Ada"}`),
			})
			if err != nil {
				return err
			}
			job.CorrelationID = "signup-7"
			jobs = append(jobs, job)
		}
		receipts, err = mailsink.Enqueue(ctx, store, ledger, jobs...)
		return err
	}))
	first, second := receipts[0].ID, receipts[1].ID
	// A worker reserved the second, and was not seen again.
	r, err := ledger.Reserve(t.Context(), mailsink.ReserveRequest{
		JobID: second, Token: "died", For: time.Millisecond, Attempt: 1, Recipients: []string{"ada@example.org"}, Hash: "h",
	})
	require.NoError(t, err)
	require.Equal(t, mailsink.VerdictReserved, r.Verdict)

	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	var log bytes.Buffer
	go func() { ended <- run(ctx, []string{"relay", "-c", path}, &log, &log) }()
	defer func() {
		stop()
		require.Equal(t, exitOK, <-ended, log.String())
	}()
	become := func(id string, want core.JobState) {
		t.Helper()
		require.Eventually(t, func() bool {
			job, err := store.Job(t.Context(), id)
			return err == nil && job.State == want
		}, 60*time.Second, 20*time.Millisecond)
	}
	become(first, core.JobCompleted)
	become(second, core.JobUnknown)
	require.NoFileExists(t, filepath.Join(out, second+".eml"))

	status, _, stderr = outbox(t, "mail", "resolve", second, "-c", path, "--by", "ada")
	require.Equal(t, exitUsage, status)
	require.Contains(t, stderr, "one of --sent and --resend")
	status, stdout, stderr = outbox(t, "mail", "resolve", second, "-c", path, "--by", "ada", "--resend", "--dry-run")
	require.Equal(t, exitOK, status, stderr)
	require.Contains(t, stdout, "unknown ada@example.org")
	status, stdout, stderr = outbox(t, "mail", "resolve", second, "-c", path, "--by", "ada", "--resend", "--reason", "not in the log")
	require.Equal(t, exitOK, status, stderr)
	require.Contains(t, stdout, "1 job will end by itself")
	become(second, core.JobCompleted)

	for id, want := range map[string]string{first: "Subject: Hallo Ada\r\n", second: "Subject: Hi Ada\r\n"} {
		text, err := os.ReadFile(filepath.Join(out, id+".eml"))
		require.NoError(t, err)
		require.Contains(t, string(text), want)
	}
	var kinds []string
	record, err := ledger.Mail(t.Context(), second)
	require.NoError(t, err)
	for _, step := range record.Steps {
		kinds = append(kinds, string(step.Kind))
	}
	require.Equal(t, "queued attempt unknown resolved redelivered attempt sent", strings.Join(kinds, " "))
	status, _, stderr = outbox(t, "mail", "resolve", first, "-c", path, "--by", "ada", "--sent")
	require.Equal(t, exitFailed, status)
	require.Contains(t, stderr, "the mail is sent")
}

func TestMailProblemsAreNamedWithTheirPlaces(t *testing.T) {
	t.Parallel()
	status, _, stderr := outbox(t, "config", "-c", configFile(t, `store:
  mongodb: {uri: "mongodb://127.0.0.1:1/", database: shop}
sinks:
  one: {type: mail, from: nobody, on_unknown: guess}
  two: {type: mail, folder: {path: x}, smtp: {host: "h:25", username: me, password: c4n4ry, security: none}}
  three: {type: mail, smtp: {port: 70000}}
workers:
  - {sink: one}
`))
	require.Equal(t, exitUsage, status)
	for _, want := range []string{
		"sinks.one.from: is no address", "sinks.one.on_unknown: must be one of", "sinks.one: needs one of smtp and folder",
		"sinks.two: needs one of smtp and folder", "sinks.two.smtp.host: must be a name", "sinks.two.smtp.security: must be starttls or tls",
		"sinks.three.smtp.host: is missing", "sinks.three.smtp.port: is outside",
	} {
		require.Contains(t, stderr, want)
	}
	require.NotContains(t, stderr, "c4n4ry")
}
