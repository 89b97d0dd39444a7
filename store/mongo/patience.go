package mongo

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// callPatience is how long a call to the server may take beyond what it waits
// for events. A server that went away without closing the connection never
// answers, and nothing else would tell.
const callPatience = 25 * time.Second

// errNoAnswer: a call was given up.
var errNoAnswer = errors.New("the server has not answered")

// patience bounds calls to the server. It doubles with each failure in a row,
// so that a healthy server that has much to look through gets its time.
type patience struct {
	base     time.Duration
	failures int
}

// call runs fn with a context that ends when patience does, and tells whether
// it did.
func (p *patience) call(ctx context.Context, fn func(ctx context.Context)) error {
	limit := p.base << min(p.failures, 7)
	watched, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(limit, func() { cancel(errNoAnswer) })
	defer timer.Stop()
	fn(watched)
	if errors.Is(context.Cause(watched), errNoAnswer) {
		p.failures++
		return fmt.Errorf("%w for %s", errNoAnswer, limit)
	}
	return nil
}
