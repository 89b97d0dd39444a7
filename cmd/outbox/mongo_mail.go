package main

import (
	"context"

	mailsink "github.com/gooutbox/outbox/sink/mail"
	"github.com/gooutbox/outbox/store/mongo/mailstore"
)

var _ mailKeeper = (*mongoStore)(nil)

// mailConfig names the mails' collections after the log's.
func (s *mongoStore) mailConfig() mailstore.Config {
	return mailstore.Config{Prefix: s.options.Collection}
}

func (s *mongoStore) mailLedger() (mailsink.Ledger, error) {
	return mailstore.NewLedger(s.client.Database(s.options.Database), s.mailConfig())
}

func (s *mongoStore) mailSuppressions() (mailsink.SuppressionList, error) {
	return mailstore.NewList(s.client.Database(s.options.Database), s.mailConfig())
}

// ensureMailIndexes makes the indexes of what is kept of mails, where they are
// missing.
func (s *mongoStore) ensureMailIndexes(ctx context.Context, dryRun bool) ([]string, error) {
	names := s.options.Database + "." + s.options.Collection + "_mails and _suppressed"
	if dryRun {
		return []string{"would make what is missing of the indexes of " + names}, nil
	}
	db := s.client.Database(s.options.Database)
	ledger, err := mailstore.NewLedger(db, s.mailConfig())
	if err != nil {
		return nil, err
	}
	list, err := mailstore.NewList(db, s.mailConfig())
	if err != nil {
		return nil, err
	}
	if err := ledger.EnsureIndexes(ctx); err != nil {
		return nil, err
	}
	if err := list.EnsureIndexes(ctx); err != nil {
		return nil, err
	}
	return []string{"the indexes of " + names + " are there"}, nil
}
