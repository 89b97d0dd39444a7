package mongo

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
)

// transactionKey is where InTransaction keeps what Append must tell it.
type transactionKey struct{}

// transaction remembers the first error of an Append, in case fn swallows it.
type transaction struct{ failed error }

// InTransaction runs fn in a transaction of its own, with snapshot reads on the
// primary and majority writes, and commits it when fn returns nil. Writes and
// Append belong to it only through the context that fn is given.
//
// The driver's rules hold: fn is run again after a write conflict or a failover,
// so it must have no other effect than what it writes through that context, and
// must return every error of the driver. A commit whose answer was lost is sent
// again, which is safe. The error is fn's own, or tells why the transaction did
// not commit. An error of Append that fn did not return is returned in its
// place: the transaction is over in any case.
//
// A context that carries a running transaction of this client joins it: fn runs
// once in it, and whoever started it commits. That of another client is refused
// by ErrOtherClient.
func (s *Store) InTransaction(ctx context.Context, fn func(ctx context.Context) error) error {
	running, err := s.running(ctx)
	if err != nil {
		return err
	}
	if running {
		return fn(ctx)
	}
	fnErr, err := s.transact(ctx, fn)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errNoTransactions):
		return err // as Append told it
	case isNoTransactions(err):
		return fmt.Errorf("%w: %w", errNoTransactions, err)
	case fnErr == nil:
		return fmt.Errorf("committing a transaction: %w", err)
	}
	return err
}

// transact runs fn in a transaction. fnErr is what the last run of fn returned.
func (s *Store) transact(ctx context.Context, fn func(ctx context.Context) error) (fnErr, err error) {
	session, err := s.client.StartSession()
	if err != nil {
		return nil, fmt.Errorf("starting a session: %w", err)
	}
	defer session.EndSession(context.WithoutCancel(ctx))
	_, err = session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
		state := &transaction{}
		fnErr = fn(context.WithValue(ctx, transactionKey{}, state))
		if fnErr == nil {
			fnErr = state.failed
		}
		return nil, fnErr
	}, options.Transaction().
		SetReadConcern(readconcern.Snapshot()).
		SetReadPreference(readpref.Primary()).
		SetWriteConcern(writeconcern.Majority()))
	return fnErr, err
}

// running tells whether ctx carries a running transaction of this client.
func (s *Store) running(ctx context.Context) (bool, error) {
	session := mongo.SessionFromContext(ctx)
	if session == nil || !session.TransactionRunning() {
		return false, nil
	}
	if session.Client() != s.client {
		return false, ErrOtherClient
	}
	return true, nil
}

// errNoTransactions explains what a standalone answers to the first operation
// of a transaction.
var errNoTransactions = errors.New("this mongod is a standalone and has no transactions: start it with --replSet, " +
	"or set AllowNoTransaction and append outside of transactions")

// isNoTransactions tells whether a standalone refused a transaction. It goes by
// the sentences: fn may have lost the code, and the driver makes an error of its
// own, which blames retryable writes, of what answers a commit.
func isNoTransactions(err error) bool {
	text := err.Error()
	return strings.Contains(text, "Transaction numbers are only allowed on a replica set") ||
		strings.Contains(text, "does not support retryable writes")
}

// transacts tells whether the server has transactions.
func (s *Store) transacts(ctx context.Context) bool {
	server, err := s.deployment(ctx)
	return err == nil && server.set
}
