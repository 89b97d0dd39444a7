package tests

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
	"github.com/gooutbox/outbox/relay"
	mongostore "github.com/gooutbox/outbox/store/mongo"
)

// TestJobsAreDeliveredThroughANetworkThatCutsConnections: claims and settlements
// end before they reach the server, and after it has done them. Nothing is lost,
// and no try that was refused is counted twice.
func TestJobsAreDeliveredThroughANetworkThatCutsConnections(t *testing.T) {
	t.Parallel()
	address, err := url.Parse(servicetest.MongoURL(t))
	require.NoError(t, err)
	own := servicetest.Database(t)
	direct, err := mongostore.New(own, mongostore.Config{})
	require.NoError(t, err)
	require.NoError(t, direct.EnsureIndexes(t.Context()))
	proxy := servicetest.NewProxy(t, address.Host)

	jobs := scale(600, 6000)
	var mu sync.Mutex
	tries := map[string]int{}
	sink := core.SinkFunc(func(_ context.Context, l core.Lease) error {
		mu.Lock()
		defer mu.Unlock()
		tries[l.Event.ID]++
		if len(l.Event.ID)%2 == 0 && l.Attempt == 1 { // half of them once
			return fmt.Errorf("attempt %d is refused", l.Attempt)
		}
		return nil
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for range 2 {
		client := servicetest.Client(t, "mongodb://"+proxy.Address()+"/?directConnection=true",
			options.Client().SetServerSelectionTimeout(2*time.Second))
		store, err := mongostore.New(client.Database(own.Name()), mongostore.Config{})
		require.NoError(t, err)
		r, err := relay.New(relay.Config{
			Queue: store, Sinks: map[string]core.Sink{"s": sink}, Logger: slog.New(slog.DiscardHandler),
			Workers: []relay.Worker{{Sink: "s", Lease: 2 * time.Second, Backoff: relay.Backoff{Initial: 50 * time.Millisecond, Max: time.Second}}},
			// Leases run out where the answer to a claim was lost: that ends no job.
			MaxRedeliveries: 1000,
		})
		require.NoError(t, err)
		running.Go(func() { _ = r.Run(ctx) })
	}
	t.Cleanup(running.Wait)
	t.Cleanup(cancel)

	var receipts []core.Receipt
	for n := range jobs {
		job := plainJob("{}")
		job.ID = fmt.Sprintf("job-%d%s", n, []string{"", "-", "--"}[n%3])
		job.MaxAttempts = 2
		receipts = append(receipts, enqueue(t, direct, job)...)
		switch rand.IntN(20) {
		case 0:
			proxy.CutAfter(1+rand.IntN(20_000), servicetest.ToServer)
		case 1:
			proxy.CutAfter(1+rand.IntN(20_000), servicetest.ToClient)
		case 2:
			proxy.Cut()
		}
	}
	cuts := proxy.Cuts()
	proxy.CutAfter(1<<40, servicetest.ToServer)
	require.Positive(t, cuts)
	for _, receipt := range receipts {
		eventually(t, 2*time.Minute, "the end of all jobs", func() bool {
			info, err := direct.Job(t.Context(), receipt.ID)
			require.NoError(t, err)
			return info.State.Final()
		})
		info, err := direct.Job(t.Context(), receipt.ID)
		require.NoError(t, err)
		require.Equal(t, core.JobCompleted, info.State, "%+v", info)
		refused := 1 - len(info.EventID)%2
		require.Equal(t, 1+refused, info.Attempts, "%+v", info)
		mu.Lock()
		require.GreaterOrEqual(t, tries[info.EventID], info.Attempts)
		mu.Unlock()
	}
	t.Logf("%d connections cut by a number of bytes", cuts)
}
