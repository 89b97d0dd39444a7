package tests

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gooutbox/outbox/internal/services"
	"github.com/gooutbox/outbox/internal/servicetest"
	mongostore "github.com/gooutbox/outbox/store/mongo"
)

// TestStepDownsLoseNothing forces elections in a set of three nodes while an
// order service commits and relays are killed.
func TestStepDownsLoseNothing(t *testing.T) {
	set := servicetest.StartMongod(t, services.MongodConfig{Nodes: 3, CacheMB: 256})
	for round := range scale(1, 30) {
		t.Run(fmt.Sprintf("round-%02d", round+1), func(t *testing.T) {
			s := newStage(t, servers{uri: set.URL()}, mongostore.Config{})
			w := s.workload(scale(2000, 20_000), scale(100, 500))
			w.Seed += uint64(round)
			w.PerSecond = scale(200.0, 0)
			var stepDowns atomic.Int64
			stepping, stop := background(t, func(ctx context.Context) {
				for every(ctx, 3*time.Second) {
					if set.StepDown(ctx) == nil {
						stepDowns.Add(1)
					}
				}
			})
			kills := s.killThrough(w)
			stop()
			<-stepping
			require.Positive(t, stepDowns.Load(), "no primary stepped down")
			s.check(fmt.Sprintf("kills=%d stepdowns=%d", kills, stepDowns.Load()), mostRepeats)
		})
	}
}

// TestBrokerRestartsLoseNothing stops and kills Kafka while an order service
// commits and relays are killed.
func TestBrokerRestartsLoseNothing(t *testing.T) {
	broker := servicetest.StartKafka(t, services.KafkaConfig{})
	for round := range scale(1, 30) {
		t.Run(fmt.Sprintf("round-%02d", round+1), func(t *testing.T) {
			s := newStage(t, servers{brokers: broker.Brokers()}, mongostore.Config{})
			s.config.RouteOptions = append(s.config.RouteOptions, "outage_backoff: {initial: 200ms, max: 1s}")
			w := s.workload(scale(2000, 20_000), scale(100, 500))
			w.Seed += uint64(round)
			w.PerSecond = scale(150.0, 500)
			restarts := scale(2, 6)
			restarting, stop := background(t, func(ctx context.Context) {
				for n := range restarts {
					share := int64(w.Transactions * (n + 1) / (restarts + 1))
					for w.Progress().Done < share && every(ctx, 20*time.Millisecond) {
						continue
					}
					if n%2 == 0 {
						broker.Kill()
					} else if err := broker.Stop(); err != nil {
						t.Errorf("stopping the broker: %v", err)
					}
					if err := broker.Start(ctx); err != nil {
						t.Errorf("starting the broker: %v", err)
					}
				}
			})
			defer stop()
			kills := s.killThrough(w)
			<-restarting
			s.check(fmt.Sprintf("kills=%d restarts=%d", kills, restarts), mostRepeats)
		})
	}
}
