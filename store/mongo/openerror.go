package mongo

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/mongo"
)

// Codes of server errors that reading meets.
const (
	codeAuthenticationFailed = 18
	codeCursorNotFound       = 43
	codeQueryPlanKilled      = 175
	codeCursorKilled         = 237
	codeSnapshotTooOld       = 239
	codeSnapshotUnavailable  = 246
	codeInvalidToken         = 260
	codeStreamFatal          = 280
	codeHistoryLost          = 286
	codeAtlasUnauthorized    = 8000
	codeNotOnView            = 166
	codeOptionNotOnView      = 167
	codeTooLargeForReply     = 10334
	codeNoChangeStreams      = 40573
)

// passingCodes are errors of a server that is busy, going away or changing its
// role: the same call works a little later.
var passingCodes = []int{
	6, 7, 24, 50, 63, 89, 91, 133, 134, 150, 189, 202, 234, 262, 290, 358, 365, 384, 402, 462,
	9001, 10107, 11600, 11601, 11602, 13388, 13435, 13436, codeCursorNotFound, codeCursorKilled,
}

// meaning is what an error says about a place in the change stream.
type meaning uint8

const (
	// meansWait: it says nothing; try again later.
	meansWait meaning = iota
	// meansRights: the user may not read the stream.
	meansRights
	// meansNone: this server has no change streams.
	meansNone
	// meansUnfit: the log is no collection that has changes.
	meansUnfit
	// meansLost: the stream can't go on from there.
	meansLost
)

// meaningOf tells what follows from an error of opening a change stream.
// Whatever is neither passing nor about rights or settings means that the place
// is lost: a server of another version may word it anew.
func meaningOf(err error) meaning {
	switch {
	case !isServerError(err):
		return meansWait
	case hasCode(err, codeUnauthorized, codeAuthenticationFailed, codeAtlasUnauthorized):
		return meansRights
	case hasCode(err, codeNoChangeStreams):
		return meansNone
	case hasCode(err, codeNotOnView, codeOptionNotOnView):
		return meansUnfit
	case hasCode(err, passingCodes...), hasLabel(err, "ResumableChangeStreamError", "RetryableError"):
		return meansWait
	}
	return meansLost
}

func hasLabel(err error, labels ...string) bool {
	labeled, ok := errors.AsType[mongo.LabeledError](err)
	if !ok {
		return false
	}
	for _, label := range labels {
		if labeled.HasErrorLabel(label) {
			return true
		}
	}
	return false
}

// snapshotEnded tells whether an error of a scan means no more than that its
// snapshot, or the server's cursor on it, is gone.
func snapshotEnded(err error) bool {
	return hasCode(err, codeSnapshotTooOld, codeSnapshotUnavailable, codeCursorNotFound, codeCursorKilled, codeQueryPlanKilled)
}

// lost deals with an error of opening the stream. It returns nil when a scan
// has begun instead.
func (r *reader) lost(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	switch meaningOf(err) {
	case meansRights:
		return fmt.Errorf("opening the change stream: the user needs the actions find and changeStream on %s.%s: %w",
			r.store.db.Name(), r.store.log.Name(), err)
	case meansNone:
		return fmt.Errorf("opening the change stream: start mongod with --replSet, or configure polling: %w", err)
	case meansUnfit:
		return fmt.Errorf("opening the change stream: %w: %w", ErrUnfitLog, err)
	case meansLost:
		return r.recoverByScan(ctx, err)
	}
	return fmt.Errorf("opening the change stream: %w", err)
}

// reason names an error in a metric.
func reason(err error) string {
	switch {
	case hasCode(err, codeHistoryLost):
		return "history lost"
	case hasCode(err, codeStreamFatal, codeInvalidToken):
		return "token unknown"
	case hasCode(err, codeTooLargeForReply):
		return "event too large"
	case errors.Is(err, errReplaced):
		return "collection replaced"
	}
	return "token unreadable"
}
