package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gooutbox/outbox/core"
	mailsink "github.com/gooutbox/outbox/sink/mail"
)

func (p *program) mailResolveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "resolve ID",
		Short: "Decide about a mail of unknown outcome",
		Long: "Resolve says what became of a mail that may or may not have been sent, such as when a worker died while it\n" +
			"sent: --sent takes it for sent, --resend sends it again. Its job then ends by itself. Look into the mail\n" +
			"server's log first: ID is the job's, and the Message-ID is printed. What is done is recorded in the mail's\n" +
			"own story, and see acts.",
		Example: "  outbox mail resolve 01a5a1b0-6f3e-7a54-9cde-0242ac120002 --sent --reason \"seen in the server's log\"",
		Args:    wants(1),
	}
	acting := actFlags(cmd)
	sent := cmd.Flags().Bool("sent", false, "it was sent")
	resend := cmd.Flags().Bool("resend", false, "send it again")
	return p.operation(cmd, actTimeout, func(ctx context.Context, s store, args []string, out output) error {
		if *sent == *resend {
			return &usageError{errors.New("decide by one of --sent and --resend")}
		}
		act, err := acting.act()
		if err != nil {
			return err
		}
		keeper, ok := s.(mailKeeper)
		if !ok {
			return errNoMails
		}
		ledger, err := keeper.mailLedger()
		if err != nil {
			return err
		}
		ids, err := findJobs(ctx, s, args)
		if err != nil {
			return err
		}
		decision := mailsink.DecideSent
		if *resend {
			decision = mailsink.DecideResend
		}
		done, err := resolveMail(ctx, s, ledger, mailsink.Resolution{JobID: ids[0], Decision: decision, By: act.By, Why: act.Reason}, act)
		if err != nil {
			return err
		}
		return out.print(done, func(p *page) {
			p.line("mail %s <%s> is taken as %s"+inDryRun(act), done.ID, done.MessageID, done.State)
			for _, r := range done.Recipients {
				p.line("  %s", plain(strings.TrimSpace(fmt.Sprintf("%s %s %s", r.State, r.Address, r.Detail))))
			}
			if !act.DryRun {
				p.line("%s will end by itself", countOf(done.Jobs, "job"))
			}
		})
	})
}

type resolvedJSON struct {
	ID         string          `json:"id"`
	Decision   string          `json:"decision"`
	DryRun     bool            `json:"dry_run"`
	State      string          `json:"state"`
	MessageID  string          `json:"message_id"`
	Recipients []recipientJSON `json:"recipients"`
	// Jobs that were made ready: they end by what the ledger says now.
	Jobs int64 `json:"jobs"`
}

type recipientJSON struct {
	Address string `json:"address"`
	State   string `json:"state"`
	Detail  string `json:"detail,omitempty"`
}

// resolveMail decides, and then makes the job ready: the sink reads in the ledger
// whether to send. Done again after it was cut short it does the rest.
func resolveMail(ctx context.Context, s store, ledger mailsink.Ledger, r mailsink.Resolution, act core.Act) (resolvedJSON, error) {
	done := resolvedJSON{ID: r.JobID, Decision: string(r.Decision), DryRun: act.DryRun}
	var record mailsink.Record
	var err error
	if act.DryRun {
		record, err = ledger.Mail(ctx, r.JobID)
	} else {
		record, err = ledger.Resolve(ctx, r)
	}
	switch {
	case errors.Is(err, mailsink.ErrNoMail):
		return done, &usageError{fmt.Errorf("nothing is known of a mail of the job %s", r.JobID)}
	case errors.Is(err, mailsink.ErrNotResolvable):
		return done, fmt.Errorf("the mail is %s, and only one of unknown outcome can be decided so: %w", record.State, err)
	case err != nil:
		return done, err
	}
	done.State, done.MessageID = string(record.State), record.MessageID
	for _, one := range record.Recipients {
		done.Recipients = append(done.Recipients, recipientJSON{one.Address, string(one.State), one.Detail})
	}
	if act.DryRun {
		return done, nil
	}
	done.Jobs, err = s.Retry(ctx, core.JobFilter{IDs: []string{r.JobID}, State: core.JobUnknown}, act)
	return done, err
}
