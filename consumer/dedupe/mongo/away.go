package mongo

import (
	"context"
	"errors"
	"strings"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"

	"github.com/gooutbox/outbox/core"
)

// away marks an error as the database's state where it is: no primary, no
// connection. An error that has an outcome of its own keeps it, and so does the
// end of the caller's context.
func away(err error) error {
	if err == nil || core.ResultOf("", err).Outcome != core.Refused && !isSelection(err) {
		return err
	}
	if isSelection(err) || mongo.IsNetworkError(err) || hasCode(err) {
		return core.MarkUnavailable(err)
	}
	return err
}

func isSelection(err error) bool {
	_, ok := errors.AsType[topology.ServerSelectionError](err)
	return ok && !errors.Is(err, context.Canceled)
}

// awayCodes are those of a server that is no primary, or that stops.
var awayCodes = []int{
	6, 7, 89, // no host, no answer
	91, 189, 9001, 10107, 11600, 11602, 13435, 13436, // stepping down, shutting down
	64, // no majority in time
}

func hasCode(err error) bool {
	server, ok := errors.AsType[mongo.ServerError](err)
	if !ok {
		return false
	}
	for _, code := range awayCodes {
		if server.HasErrorCode(code) {
			return true
		}
	}
	return false
}

// errNoTransactions explains what a standalone answers.
var errNoTransactions = errors.New("this mongod is a standalone and has no transactions: start it with --replSet")

func explained(err error) error {
	if err != nil && strings.Contains(err.Error(), "Transaction numbers are only allowed on a replica set") {
		return errors.Join(errNoTransactions, err)
	}
	return err
}
