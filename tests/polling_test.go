package tests

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
	"github.com/gooutbox/outbox/internal/trial"
	mongostore "github.com/gooutbox/outbox/store/mongo"
)

// TestPollingUnderKillsLosesNothing kills relays that poll a standalone mongod,
// where an event exists when its own insert is durable: the log itself is the
// ledger.
func TestPollingUnderKillsLosesNothing(t *testing.T) {
	t.Parallel()
	s := newStage(t, servers{uri: servicetest.StandaloneURL(t)}, mongostore.Config{AllowNoTransaction: true})
	s.config.Lease = shortLease
	s.config.Store = []string{"poll_interval: 50ms"}
	s.follow()
	events, keys := scale(3000, 50_000), scale(40, 200)
	killing, done := context.WithCancel(t.Context())
	defer done()
	appended, _ := background(t, func(ctx context.Context) {
		defer done()
		s.appendSingly(ctx, events, keys)
	})
	relay, kills, err := trial.Killing{
		Start:     func() (*trial.Relay, error) { return s.tryStart() },
		Collector: s.collector,
	}.Run(killing)
	require.NoError(t, err)
	<-appended
	committed := s.logAsLedger()
	require.Len(t, committed, events)
	if err := s.collector.AwaitDelivered(t.Context(), committed); err != nil {
		t.Logf("%v\nthe relay's log:\n%s", err, relay.Log())
	}
	require.Positive(t, kills, "the relay was never killed")
	eventually(t, 10*time.Second, "the mark on every event", func() bool {
		n, err := s.db.Collection("outbox").CountDocuments(t.Context(), bson.D{{Key: "published_at", Value: nil}})
		return err == nil && n == 0
	})
	s.stop(relay)
	s.checkAgainst(committed, fmt.Sprintf("kills=%d", kills), mostRepeats)
}

// appendSingly inserts events outside transactions; those of a key come from
// one worker, so their order is that of their versions.
func (s *stage) appendSingly(ctx context.Context, events, keys int) {
	const workers = 4
	var appending sync.WaitGroup
	for worker := range workers {
		appending.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(worker)))
			versions := map[string]int64{}
			for n := worker; n < events; n += workers {
				key := fmt.Sprintf("account-%d-%d", worker, random.IntN(keys/workers))
				versions[key]++
				event := core.Event{
					ID: strconv.Itoa(n), AggregateID: key, Type: "account.changed", AggregateVersion: versions[key],
					Payload: fmt.Appendf(nil, `{"account":%q,"version":%d}`, key, versions[key]),
				}
				if err := s.store.Append(ctx, event); err != nil && ctx.Err() == nil {
					s.t.Errorf("appending: %v", err)
				}
			}
		})
	}
	appending.Wait()
}

// logAsLedger reads what the log holds.
func (s *stage) logAsLedger() []trial.Committed {
	s.t.Helper()
	cursor, err := s.db.Collection("outbox").Find(s.t.Context(), bson.D{}, options.Find().SetProjection(bson.D{
		{Key: "key", Value: "$aggregate_id"}, {Key: "version", Value: "$aggregate_version"},
	}))
	require.NoError(s.t, err)
	var committed []trial.Committed
	require.NoError(s.t, cursor.All(s.t.Context(), &committed))
	return committed
}
