package tests

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
	"github.com/gooutbox/outbox/internal/trial"
	mongostore "github.com/gooutbox/outbox/store/mongo"
)

// nowhere is an address at which nobody listens.
const nowhere = "127.0.0.1:1"

// phases are what a relay may be doing when it is told to stop.
var phases = []struct {
	name string
	// bring starts a relay and returns when it is in the phase.
	bring func(s *stage, n network) *trial.Relay
	// kept: the cursor can't be given back, since its database is silent.
	kept bool
}{
	{name: "before its database was ever there", bring: func(s *stage, n network) *trial.Relay {
		n.mongo.To(nowhere)
		return s.startUntil("the store doesn't answer yet")
	}},
	{name: "acquiring from a database that is silent", bring: func(s *stage, n network) *trial.Relay {
		n.mongo.Stall()
		return s.startUntil("relay started")
	}},
	{name: "scanning", bring: func(s *stage, n network) *trial.Relay {
		n.kafka.Delay(100 * time.Millisecond)
		return s.startUntil("holding the cursor")
	}},
	{name: "scanning a database that fell silent", kept: true, bring: func(s *stage, n network) *trial.Relay {
		n.kafka.Delay(100 * time.Millisecond)
		relay := s.startUntil("holding the cursor")
		n.mongo.Stall()
		return relay
	}},
	{name: "delivering what comes", bring: func(s *stage, _ network) *trial.Relay {
		relay := s.startUntil("holding the cursor")
		w := s.workload(1<<30, 50)
		w.PerSecond, w.Workers = 300, 4
		background(s.t, func(ctx context.Context) { _ = w.Run(ctx) }) // until the test ends
		eventually(s.t, 20*time.Second, "a delivery by stream", func() bool {
			events, _ := s.collector.Events()
			return s.collector.CatchUp(s.t.Context()) == nil && events > backlog+50
		})
		return relay
	}},
	{name: "waiting for a broker that is away", bring: func(s *stage, n network) *trial.Relay {
		n.kafka.To(nowhere)
		return s.startUntil("the sink takes nothing")
	}},
	{name: "calling a broker that is silent", bring: func(s *stage, n network) *trial.Relay {
		n.kafka.Stall()
		relay := s.startUntil("holding the cursor")
		s.awaitWaiting(n.kafka)
		return relay
	}},
	{name: "holding a key whose topic is missing", bring: func(s *stage, _ network) *trial.Relay {
		s.config.Topic += `{{ if eq .Type "missing" }}-missing{{ end }}`
		s.appendAtOnce(core.Event{AggregateID: "held", Type: "missing", Payload: []byte(`{}`)})
		return s.startUntil("an event did not get through")
	}},
	{name: "with everything silent", kept: true, bring: func(s *stage, n network) *trial.Relay {
		n.kafka.Stall()
		relay := s.startUntil("holding the cursor")
		s.awaitWaiting(n.kafka)
		n.mongo.Stall()
		s.awaitWaiting(n.mongo)
		return relay
	}},
}

// backlog is how many events wait for a relay that is told to stop.
const backlog = 3000

// TestARelayStopsInEachPhase sends SIGTERM to a relay wherever it may be. It
// ends within its drain time and what it is given to say goodbye, with status
// 0, and its cursor is free at once.
func TestARelayStopsInEachPhase(t *testing.T) {
	t.Parallel()
	const drain, goodbye, lease = 2 * time.Second, 12 * time.Second, 60 * time.Second
	n := newNetwork(t, servicetest.MongoURL(t))
	for _, phase := range phases {
		t.Run(phase.name, func(t *testing.T) {
			defer n.restore()
			s := n.stage(t, mongostore.Config{})
			s.config.Lease = lease
			s.config.Relay = []string{"drain: " + drain.String()}
			events := make([]core.Event, backlog)
			for i := range events {
				events[i] = core.Event{AggregateID: servicetest.Name(t), Type: "thing.happened", Payload: []byte(`{}`)}
			}
			s.appendAtOnce(events...)
			relay := phase.bring(s, n)
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), drain+goodbye)
			defer cancel()
			require.NoError(t, relay.Stop(ctx), "after %s", time.Since(began))
			results.add(t.Name(), "", "stopped after "+time.Since(began).Round(10*time.Millisecond).String())
			n.restore()
			if !phase.kept {
				began = time.Now()
				s.hold().Kill()
				require.Less(t, time.Since(began), lease/4, "the cursor was not given back\n%s", relay.Log())
			}
		})
	}
}

// startUntil starts a relay and waits for a line of its log.
func (s *stage) startUntil(line string) *trial.Relay {
	s.t.Helper()
	relay := s.start()
	ctx, cancel := context.WithTimeout(s.t.Context(), 30*time.Second)
	defer cancel()
	require.NoError(s.t, relay.Await(ctx, line))
	return relay
}

// awaitWaiting waits until something is held back by a stalled network.
func (s *stage) awaitWaiting(p *servicetest.Proxy) {
	s.t.Helper()
	eventually(s.t, 20*time.Second, "a request into silence", func() bool { return p.Waiting() > 0 })
}

// appendAtOnce commits events in one transaction.
func (s *stage) appendAtOnce(events ...core.Event) {
	s.t.Helper()
	require.NoError(s.t, s.store.InTransaction(s.t.Context(), func(ctx context.Context) error {
		return s.store.Append(ctx, events...)
	}))
}
