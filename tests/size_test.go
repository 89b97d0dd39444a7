package tests

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
	"github.com/gooutbox/outbox/internal/trial"
	mongostore "github.com/gooutbox/outbox/store/mongo"
)

// transactions of a size that the server can't keep in one entry of its oplog,
// and events that a change event can just hold.
var large = []struct {
	name          string
	events, bytes int
}{
	{"15 MB", 15, 1_000_000},
	{"several times 16 MB", scale(20, 60), 1_000_000},
	{"largest events", scale(1, 3), mongostore.LargestEventBytes - 100},
	{"many events", scale(5000, 50_000), 200},
}

// TestLargeTransactionsArriveWhole commits large transactions, for a relay that
// reads the stream and for one that scans.
func TestLargeTransactionsArriveWhole(t *testing.T) {
	t.Parallel()
	s := newStage(t, servers{}, mongostore.Config{MaxEventBytes: mongostore.LargestEventBytes})
	topic := servicetest.Topic(t, 3, fmt.Sprintf("max.message.bytes=%d", 20<<20))
	s.topic, s.config.Topic = topic, topic
	s.collector = trial.NewCollector(s.config.Brokers, topic)
	t.Cleanup(s.collector.Close)

	for _, by := range []string{"stream", "scan"} {
		var relay *trial.Relay
		if by == "stream" {
			relay = s.hold()
			s.commitLarge(by)
		} else {
			s.config.Route = "scan"
			s.commitLarge(by)
			relay = s.hold()
		}
		s.awaitLarge(by)
		results.add(t.Name(), "by "+by, fmt.Sprintf("memory=%dMiB", relay.PeakMemory()>>20))
		s.stop(relay)
		require.Zero(t, relay.Count("level=WARN"), relay.Log())
	}
}

func (s *stage) commitLarge(prefix string) {
	s.t.Helper()
	for _, transaction := range large {
		require.NoError(s.t, s.store.InTransaction(s.t.Context(), func(ctx context.Context) error {
			events := make([]core.Event, transaction.events)
			for i := range events {
				events[i] = core.Event{
					ID: fmt.Sprintf("%s %s %d", prefix, transaction.name, i), AggregateID: fmt.Sprint("key-", i%7), Type: "thing.happened",
					AggregateVersion: int64(i), Payload: bytes.Repeat([]byte{byte(i)}, transaction.bytes-len(prefix)),
				}
			}
			return s.store.Append(ctx, events...)
		}), transaction.name)
	}
}

// awaitLarge waits for all that commitLarge committed, and checks it.
func (s *stage) awaitLarge(prefix string) {
	s.t.Helper()
	for _, transaction := range large {
		ids := make([]string, transaction.events)
		for i := range ids {
			ids[i] = fmt.Sprintf("%s %s %d", prefix, transaction.name, i)
		}
		s.awaitIDs(ids...)
		last := map[string]int{}
		wanted := map[string]int{}
		for i, id := range ids {
			wanted[id] = i
		}
		for _, r := range s.collector.Records() {
			i, ok := wanted[r.ID]
			if !ok {
				continue
			}
			require.Len(s.t, r.Value, transaction.bytes-len(prefix), r.ID)
			require.Equal(s.t, byte(i), r.Value[0], r.ID)
			require.Greater(s.t, i+1, last[r.Key], "%s: out of order", r.ID)
			last[r.Key] = i + 1
		}
	}
}
