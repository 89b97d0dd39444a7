package tests

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
	"github.com/gooutbox/outbox/relay"
	mongostore "github.com/gooutbox/outbox/store/mongo"
)

// TestASlowCallKeepsNoOtherJobWhileASinkIsTriedAgain: other lanes must
// find out whether the sink is back while one call takes as long as it may.
func TestASlowCallKeepsNoOtherJobWhileASinkIsTriedAgain(t *testing.T) {
	t.Parallel()
	s, err := mongostore.New(servicetest.Database(t), mongostore.Config{})
	require.NoError(t, err)
	require.NoError(t, s.EnsureIndexes(t.Context()))
	job := func(key string) core.Job {
		return core.Job{Sink: "s", Event: core.Event{AggregateID: key, Type: "t", Payload: []byte(`{}`)}}
	}
	hung, away := make(chan struct{}), make(chan struct{})
	var hanging sync.Once
	var answered, delivered atomic.Int64
	runWorker(t, s, relay.Worker{Sink: "s"}, core.SinkFunc(func(ctx context.Context, l core.Lease) error {
		switch l.Event.AggregateID {
		case "hangs":
			hanging.Do(func() { close(hung) })
			<-ctx.Done() // of the default timeout, a minute
			return ctx.Err()
		case "unavailable once":
			if answered.Add(1) == 1 {
				close(away)
				return core.MarkUnavailable(errors.New("away for a moment"))
			}
		}
		delivered.Add(1)
		return nil
	}))
	enqueue(t, s, job("hangs"))
	<-hung
	enqueue(t, s, job("unavailable once"))
	<-away
	for i := range 20 {
		enqueue(t, s, job(fmt.Sprint(i)))
	}
	eventually(t, 20*time.Second, "the other jobs", func() bool { return delivered.Load() == 21 })
}
