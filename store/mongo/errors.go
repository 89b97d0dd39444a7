package mongo

import (
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/mongo"
)

// DecodeError tells why a stored document is no event. It names the field, what
// was found and what would be right, never the value.
type DecodeError struct {
	// Field is the stored name of the field.
	Field string
	// Problem says what is wrong with it.
	Problem string
	err     error
}

func (e *DecodeError) Error() string {
	text := fmt.Sprintf("decoding a stored event: field %q %s", e.Field, e.Problem)
	if e.err != nil {
		text += ": " + e.err.Error()
	}
	return text
}

func (e *DecodeError) Unwrap() error { return e.err }

// ErrOtherClient: the transaction in the context was started by another
// mongo.Client than that of the store's database. Build the store from a
// database of the client that starts the transactions.
var ErrOtherClient = errors.New("the transaction in the context belongs to another mongo.Client: " +
	"build the store from a database of the client that starts the transactions")

// ErrTooManyCursors: the log is polled, and another cursor than the wanted one
// exists. Marks can tell what one cursor has delivered, not what several have.
var ErrTooManyCursors = errors.New("a log that is polled can have one cursor only")

// Codes of server errors.
const (
	codeBadValue              = 2
	codeUnauthorized          = 13
	codeIllegalOperation      = 20
	codeNamespaceNotFound     = 26
	codeNamespaceExists       = 48
	codeIndexOptionsConflict  = 85
	codeIndexKeySpecsConflict = 86
	codeDuplicateKey          = 11000
)

// labelTransientTransaction marks errors after which a whole transaction may
// be run again.
const labelTransientTransaction = "TransientTransactionError"

// hasCode tells whether a server error in err's chain has one of the codes.
func hasCode(err error, codes ...int) bool {
	se, ok := errors.AsType[mongo.ServerError](err)
	if !ok {
		return false
	}
	for _, code := range codes {
		if se.HasErrorCode(code) {
			return true
		}
	}
	return false
}

// isServerError tells whether the server answered, and refused.
func isServerError(err error) bool {
	_, ok := errors.AsType[mongo.ServerError](err)
	return ok && !mongo.IsNetworkError(err) && !mongo.IsTimeout(err)
}

// isTransient tells whether the driver's rules ask to try again.
func isTransient(err error) bool {
	labeled, ok := errors.AsType[mongo.LabeledError](err)
	return ok && (labeled.HasErrorLabel(labelTransientTransaction) || labeled.HasErrorLabel("RetryableWriteError") ||
		labeled.HasErrorLabel("UnknownTransactionCommitResult"))
}
