package tests

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gooutbox/outbox/internal/services"
	"github.com/gooutbox/outbox/internal/servicetest"
	mongostore "github.com/gooutbox/outbox/store/mongo"
)

// networkLease is that of relays behind a bad network.
const networkLease = 2 * time.Second

// network is what stands between relays and their servers.
type network struct {
	mongo, kafka *servicetest.Proxy
	// direct are the servers, for everybody else.
	direct servers
	broker string // what the relays' connections to Kafka lead to
}

// newNetwork puts proxies before a broker of the test's own and before the
// MongoDB at this address.
func newNetwork(t *testing.T, uri string) network {
	t.Helper()
	n := network{kafka: servicetest.NewProxy(t, ""), mongo: servicetest.NewProxy(t, "")}
	broker := servicetest.StartKafka(t, services.KafkaConfig{Advertised: n.kafka.Address()})
	n.direct = servers{uri: uri, brokers: broker.PlainBrokers()}
	n.broker = broker.Brokers()[0]
	n.restore()
	return n
}

// restore makes the network good again.
func (n network) restore() {
	address, _ := url.Parse(n.direct.uri) // clients use it
	for proxy, target := range map[*servicetest.Proxy]string{n.mongo: address.Host, n.kafka: n.broker} {
		proxy.To(target)
		proxy.Delay(0)
		proxy.Resume()
		proxy.Cut()
	}
}

// stage makes a stage whose relays reach their servers through the proxies.
func (n network) stage(t *testing.T, cfg mongostore.Config) *stage {
	t.Helper()
	s := newStage(t, n.direct, cfg)
	s.config.URI = "mongodb://" + n.mongo.Address() + "/?directConnection=true"
	s.config.Brokers = []string{n.kafka.Address()}
	s.config.Sink = []string{"timeout: 2s"}
	s.config.RouteOptions = append(s.config.RouteOptions, "outage_backoff: {initial: 100ms, max: 500ms}")
	s.config.Lease = networkLease
	return s
}

// fault is something that a network does, for a while.
type fault struct {
	name       string
	lasts      time.Duration
	begin, end func()
}

// faults are all kinds on both sides, in random order.
func (n network) faults(random *rand.Rand) []fault {
	var all []fault
	for which, proxy := range map[string]*servicetest.Proxy{"mongo": n.mongo, "kafka": n.kafka} {
		nothing := func() {}
		all = append(all,
			fault{which + " cut", 0, proxy.Cut, nothing},
			// A request that half arrives, and an answer that doesn't.
			fault{which + " cut on the way there", 0, func() { proxy.CutAfter(1+random.IntN(40_000), servicetest.ToServer) }, nothing},
			fault{which + " cut on the way back", 0, func() { proxy.CutAfter(1+random.IntN(4_000), servicetest.ToClient) }, nothing},
			fault{which + " stalled for longer than a lease", networkLease * 3 / 2, proxy.Stall, proxy.Resume},
			fault{which + " stalled", networkLease / 2, proxy.Stall, proxy.Resume},
			fault{which + " slow", time.Second, func() { proxy.Delay(150 * time.Millisecond) }, func() { proxy.Delay(0) }})
	}
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// TestABadNetworkLosesNothing cuts, stalls and slows the connections of a relay
// in the middle of its requests and answers, while an order service commits.
func TestABadNetworkLosesNothing(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, servicetest.MongoURL(t))
	s := n.stage(t, mongostore.Config{})
	w := s.workload(1<<30, 100)
	w.PerSecond, w.Workers = 150, 4
	s.follow()
	relay := s.hold()
	committing, stop := background(t, func(ctx context.Context) { _ = w.Run(ctx) }) // until stop
	faults := s.suffer(n)
	stop()
	<-committing
	s.finish(relay)
	s.check(fmt.Sprintf("faults=%d", faults), mostRepeats)
	s.requireRisingFences()
}

// TestABadNetworkLosesNothingWhereTheLogIsPolled is the same before a
// standalone mongod.
func TestABadNetworkLosesNothingWhereTheLogIsPolled(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, servicetest.StandaloneURL(t))
	s := n.stage(t, mongostore.Config{AllowNoTransaction: true})
	s.config.Store = []string{"poll_interval: 50ms"}
	s.follow()
	relay := s.hold()
	events := scale(2500, 30_000)
	appended, _ := background(t, func(ctx context.Context) { s.appendSingly(ctx, events, 40) })
	faults := s.suffer(n)
	<-appended
	committed := s.logAsLedger()
	require.Len(t, committed, events)
	if err := s.collector.AwaitDelivered(t.Context(), committed); err != nil {
		t.Logf("%v\nthe relay's log:\n%s", err, relay.Log())
	}
	s.stop(relay)
	s.checkAgainst(committed, fmt.Sprintf("faults=%d", faults), mostRepeats)
}

// suffer lets each fault of the network happen, in a soak ten times.
func (s *stage) suffer(n network) (faults int) {
	s.t.Helper()
	for range scale(1, 10) {
		random := rand.New(rand.NewPCG(rand.Uint64(), 1))
		for _, fault := range n.faults(random) {
			results.count(s.t.Name(), fault.name)
			fault.begin()
			_ = every(s.t.Context(), fault.lasts)
			fault.end()
			faults++
			_ = every(s.t.Context(), time.Duration(100+random.IntN(400))*time.Millisecond)
		}
	}
	return faults
}

// TestAHolderThatLosesItsDatabaseStops stalls the database of a relay that
// still reaches Kafka. A standby takes over, and nothing of the first relay may
// arrive behind what the second one sends.
func TestAHolderThatLosesItsDatabaseStops(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, servicetest.MongoURL(t))
	s := n.stage(t, mongostore.Config{})
	w := s.workload(1<<30, 50)
	w.PerSecond, w.Workers = 150, 4
	s.follow()
	committing, stop := background(t, func(ctx context.Context) { _ = w.Run(ctx) }) // until stop
	for range scale(1, 10) {
		before := s.lastFence()
		first := s.hold()
		eventually(t, 20*time.Second, "the first delivery", s.newFence(before))
		fence := s.lastFence()
		standby := *s
		standby.config.Brokers, standby.config.URI = n.direct.brokers, n.direct.uri
		second := standby.start()
		require.NoError(t, second.Await(t.Context(), "relay started"))
		n.mongo.Stall()
		eventually(t, 20*time.Second, "the take-over", s.newFence(fence))
		n.mongo.Resume()
		require.NoError(t, first.Await(t.Context(), "the cursor was lost"))
		s.stop(first)
		s.stop(second)
	}
	stop()
	<-committing
	s.finish(s.hold())
	s.check("", mostRepeats)
	s.requireRisingFences()
}
