package mongo

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

const (
	// defaultTransactionLife is the server's default of
	// transactionLifetimeLimitSeconds.
	defaultTransactionLife = 60 * time.Second
	// marginSlack is added to twice the life of a transaction.
	marginSlack = 60 * time.Second
)

// margin is longer than any transaction stays open: an insert lies no further
// behind its commit. The server ends transactions late, so twice its limit is
// taken. It is asked each time, since an operator may raise the limit.
func (s *Store) margin(ctx context.Context) (time.Duration, error) {
	if s.cfg.Margin > 0 {
		return s.cfg.Margin, nil
	}
	const parameter = "transactionLifetimeLimitSeconds"
	var answer struct {
		Seconds int64 `bson:"transactionLifetimeLimitSeconds"`
	}
	life := defaultTransactionLife
	err := s.client.Database("admin").RunCommand(ctx, bson.D{{Key: "getParameter", Value: 1}, {Key: parameter, Value: 1}}).Decode(&answer)
	switch {
	case hasCode(err, codeUnauthorized):
		s.warnOnce(ctx, "the user may not ask for "+parameter+": the default of 60 seconds is assumed; "+
			"grant the role clusterMonitor, or configure the margin where the parameter was raised")
	case err != nil && !isServerError(err):
		return 0, fmt.Errorf("asking for %s: %w", parameter, err)
	case err != nil:
		s.warnOnce(ctx, "the server does not tell "+parameter+": the default of 60 seconds is assumed", "error", err)
	case answer.Seconds > 0:
		life = time.Duration(answer.Seconds) * time.Second
	}
	return 2*life + marginSlack, nil
}
