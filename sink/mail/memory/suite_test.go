package memory_test

import (
	"testing"

	"github.com/gooutbox/outbox/sink/mail"
	"github.com/gooutbox/outbox/sink/mail/mailtest"
	"github.com/gooutbox/outbox/sink/mail/memory"
)

func TestLedger(t *testing.T) {
	t.Parallel()
	mailtest.RunLedger(t, func(*testing.T) mail.Ledger { return memory.NewLedger() })
}

func TestList(t *testing.T) {
	t.Parallel()
	mailtest.RunList(t, func(*testing.T) mail.SuppressionList { return &memory.List{} })
}
