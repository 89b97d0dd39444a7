package amqp

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/services"
	"github.com/gooutbox/outbox/internal/servicetest"
)

// batch makes leases of n keys with width events each, as the log holds them:
// the first of each key, then the second.
func batch(prefix string, n, width int) []core.Lease {
	var leases []core.Lease
	for w := range width {
		for k := range n {
			leases = append(leases, lease(fmt.Sprintf("%s-%d-%03d", prefix, k, w), fmt.Sprintf("%s-key-%d", prefix, k)))
		}
	}
	return leases
}

// left returns the leases that were not delivered.
func left(leases []core.Lease, results []core.Result) []core.Lease {
	var rest []core.Lease
	for i, r := range results {
		if r.Outcome != core.Delivered {
			rest = append(rest, leases[i])
		}
	}
	return rest
}

// checkHistory fails unless each of the leases arrived, in the order of its key
// once repeats are dropped. It returns the number of repeats.
func checkHistory(t *testing.T, leases []core.Lease, there []string) (repeats int) {
	t.Helper()
	key, want, got := map[string]string{}, map[string][]string{}, map[string][]string{}
	for _, l := range leases {
		key[l.Event.ID] = l.Event.AggregateID
		want[l.Event.AggregateID] = append(want[l.Event.AggregateID], l.Event.ID)
	}
	seen := map[string]bool{}
	for _, id := range there {
		if seen[id] {
			repeats++
			continue
		}
		seen[id] = true
		got[key[id]] = append(got[key[id]], id)
	}
	for k, ids := range want {
		if !slices.Equal(got[k], ids) {
			t.Errorf("%s arrived as %v, want %v", k, got[k], ids)
		}
	}
	return repeats
}

// proxied makes a sink that reaches the shared broker through a bad network.
func proxied(t *testing.T, cfg Config) (*Sink, *servicetest.Proxy, *queue) {
	t.Helper()
	url := servicetest.AMQPURL(t)
	a, err := parseAddress(url)
	if err != nil {
		t.Fatal(err)
	}
	q, proxy := newQueue(t, url, nil), servicetest.NewProxy(t, a.hostPort)
	cfg.URLs = []string{strings.Replace(url, a.hostPort, proxy.Address(), 1)}
	cfg.Exchange = q.name
	return newSink(t, cfg), proxy, q
}

// The connection is cut a hundred times, wherever the bytes happen to be: in a
// message, between it and its confirmation, in the handshake.
func TestHundredCutsLoseNothing(t *testing.T) {
	s, proxy, q := proxied(t, Config{})
	var all []core.Lease
	inFlight, cuts := 0, 100
	before := runtime.NumGoroutine()
	for round := range cuts {
		leases := batch(fmt.Sprint("r", round), 10, 3)
		all = append(all, leases...)
		direction := servicetest.Direction(round % 2)
		proxy.CutAfter([]int{1 + round*97%12_000, 1 + round*31%700}[direction], direction)
		for rest := leases; len(rest) > 0; {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			results := s.Deliver(ctx, rest)
			cancel()
			for i, r := range results {
				switch r.Outcome {
				case core.Unknown:
					inFlight++
				case core.Delivered, core.Unavailable, core.NotAttempted:
				default:
					t.Fatalf("round %d: %s is %v (%v)", round, rest[i].Event.ID, r.Outcome, r.Err)
				}
			}
			rest = left(rest, results)
		}
	}
	repeats := checkHistory(t, all, q.ids(t))
	t.Logf("%d cuts: %d events were unknown, %d arrived twice", proxy.Cuts(), inFlight, repeats)
	if proxy.Cuts() < cuts*9/10 {
		t.Errorf("the network was cut only %d times", proxy.Cuts())
	}
	if repeats > inFlight {
		t.Errorf("%d repeats of %d that were unknown", repeats, inFlight)
	}
	eventually(t, func() bool { return runtime.NumGoroutine() <= before+8 })
}

// A network that swallows everything is found out by heartbeats.
func TestSilentConnectionIsGivenUp(t *testing.T) {
	t.Parallel()
	s, proxy, q := proxied(t, Config{Heartbeat: time.Second, Timeout: 2 * time.Second})
	leases := batch("x", 5, 2)
	outcomes(t, s.Deliver(t.Context(), leases[:1]), core.Delivered)
	proxy.Stall()
	results := s.Deliver(t.Context(), leases[1:5]) // its context never ends
	outcomes(t, results, core.Unknown, core.Unknown, core.Unknown, core.Unknown)
	if err := results[0].Err; err == nil || !strings.Contains(err.Error(), "ended") {
		t.Errorf("the reason is %v", err)
	}
	outcomes(t, s.Deliver(t.Context(), leases[1:2]), core.Unavailable)
	proxy.Resume()
	for rest := leases[1:]; len(rest) > 0; {
		rest = left(rest, s.Deliver(t.Context(), rest))
	}
	checkHistory(t, leases, q.ids(t))
}

// A write that is stuck ends with its call, however much it still has to say.
func TestStuckWriteEndsWithItsContext(t *testing.T) {
	t.Parallel()
	s, proxy, q := proxied(t, Config{})
	outcomes(t, s.Deliver(t.Context(), batch("first", 1, 1)), core.Delivered)
	proxy.Stall()
	huge := lease("huge", "huge")
	huge.Event.Payload = make([]byte, 32<<20) // more than any buffer on the way
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	began := time.Now()
	results := s.Deliver(ctx, []core.Lease{huge, lease("other", "other")})
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
	if o := results[0].Outcome; o != core.Unavailable && o != core.NotAttempted {
		t.Errorf("the message that was cut off is %v (%v)", o, results[0].Err)
	}
	proxy.Resume()
	eventually(t, func() bool { return s.Deliver(t.Context(), batch("after", 1, 1))[0].Outcome == core.Delivered })
	if got := q.ids(t); slices.Contains(got, "huge") {
		t.Errorf("%v arrived", got)
	}
}

func TestAddressesAreTriedInTurn(t *testing.T) {
	t.Parallel()
	url := servicetest.AMQPURL(t)
	q := newQueue(t, url, nil)
	for _, urls := range [][]string{{"amqp://u:p@127.0.0.1:1/", url}, {url, "amqp://u:p@127.0.0.1:1/"}} {
		outcomes(t, newSink(t, Config{URLs: urls, Exchange: q.name}).Deliver(t.Context(), batch("x", 1, 1)), core.Delivered)
	}
	s := newSink(t, Config{URLs: []string{"amqp://u:c4n4ry@127.0.0.1:1/", "amqp://u:c4n4ry@127.0.0.1:2/"}})
	results := s.Deliver(t.Context(), batch("x", 2, 2))
	outcomes(t, results, core.Unavailable, core.Unavailable, core.NotAttempted, core.NotAttempted)
	if text := results[0].Err.Error(); !strings.Contains(text, "127.0.0.1:1") || !strings.Contains(text, "127.0.0.1:2") || strings.Contains(text, "c4n4ry") {
		t.Errorf("the reason is %s", text)
	}
}

func TestWhoIsNotLetInIsTold(t *testing.T) {
	t.Parallel()
	url := servicetest.AMQPURL(t)
	a, err := parseAddress(url)
	if err != nil {
		t.Fatal(err)
	}
	for wrong, want := range map[string]string{
		"amqp://" + a.user + ":c4n4ry@" + a.hostPort + "/":               `logging in as user "` + a.user + `": it is not let in`,
		"amqp://" + a.user + ":" + a.password + "@" + a.hostPort + "/no": `opening virtual host "no"`,
		"amqps://" + a.user + ":c4n4ry@" + a.hostPort + "/":              "securing the connection",
	} {
		s := newSink(t, Config{URLs: []string{wrong}})
		if err := s.Check(t.Context()); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "c4n4ry") {
			t.Errorf("%v, want %q", err, want)
		}
		outcomes(t, s.Deliver(t.Context(), batch("x", 1, 1)), core.Unavailable)
	}
}

// What a broker of its own can do: alarms, limits, ends.
func TestBrokerUnderStress(t *testing.T) {
	t.Parallel()
	broker := servicetest.StartRabbitMQ(t, services.RabbitMQConfig{Settings: map[string]string{"max_message_size": "65536"}})
	t.Run("message above its limit", func(t *testing.T) { overTheLimit(t, broker) })
	t.Run("user without the right to write", func(t *testing.T) { noRight(t, broker) })
	t.Run("memory alarm", func(t *testing.T) { memoryAlarm(t, broker) })
	t.Run("killed and stopped under load", func(t *testing.T) { killedUnderLoad(t, broker) })
}

func overTheLimit(t *testing.T, broker *services.RabbitMQ) {
	q := newQueue(t, broker.URL(), nil)
	s := newSink(t, Config{URLs: []string{broker.URL()}, Exchange: q.name})
	leases := batch("x", 10, 1)
	leases[4].Event.Payload = make([]byte, 65_537)
	leases[5].Event.Payload = make([]byte, 65_536)
	results := s.Deliver(t.Context(), leases)
	for i, r := range results {
		switch {
		case i == 4 && r.Outcome != core.Rejected:
			t.Errorf("the event that is too large is %v (%v)", r.Outcome, r.Err)
		case i != 4 && r.Outcome != core.Delivered && r.Outcome != core.Unknown:
			t.Errorf("result %d is %v (%v)", i, r.Outcome, r.Err)
		}
	}
	if err := results[4].Err; err == nil || !strings.Contains(err.Error(), "65537 bytes, limit 65536") {
		t.Errorf("the reason is %v", err)
	}
	// Now the limit is known, and costs nobody anything.
	for i, r := range s.Deliver(t.Context(), leases) {
		if want := map[bool]core.Outcome{true: core.Rejected, false: core.Delivered}[i == 4]; r.Outcome != want {
			t.Errorf("in the next call result %d is %v (%v), want %v", i, r.Outcome, r.Err, want)
		}
	}
	checkHistory(t, slices.Delete(slices.Clone(leases), 4, 5), q.ids(t))
}

func noRight(t *testing.T, broker *services.RabbitMQ) {
	for _, args := range [][]string{{"add_user", "poor", "c4n4ry"}, {"set_permissions", "poor", "", "^open", ".*"}} {
		if _, err := broker.Ctl(t.Context(), args...); err != nil {
			t.Fatal(err)
		}
	}
	admin(t, broker.URL(), func(ch *amqp091.Channel) error {
		for _, name := range []string{"open", "shut"} {
			if err := ch.ExchangeDeclare(name, "fanout", true, false, false, false, nil); err != nil {
				return err
			}
			if _, err := ch.QueueDeclare(name, true, false, false, false, nil); err != nil {
				return err
			}
			if err := ch.QueueBind(name, "", name, false, nil); err != nil {
				return err
			}
		}
		return nil
	})
	s := newSink(t, Config{URLs: []string{"amqp://poor:c4n4ry@" + broker.Address()}, Exchange: "{{ .Aggregate }}"})
	leases := batch("x", 4, 1)
	for i := range leases {
		leases[i].Event.Aggregate = map[bool]string{true: "shut", false: "open"}[i == 2]
	}
	s.Deliver(t.Context(), leases)
	results := s.Deliver(t.Context(), leases)
	outcomes(t, results, core.Delivered, core.Delivered, core.Refused, core.Delivered)
	if err := results[2].Err; !strings.Contains(err.Error(), `exchange "shut" takes nothing from this user`) || !strings.Contains(err.Error(), "403") {
		t.Errorf("the reason is %v", err)
	}
}

func memoryAlarm(t *testing.T, broker *services.RabbitMQ) {
	q := newQueue(t, broker.URL(), nil)
	s := newSink(t, Config{URLs: []string{broker.URL()}, Exchange: q.name})
	all := batch("before", 5, 1)
	for _, r := range s.Deliver(t.Context(), all) {
		if r.Outcome != core.Delivered {
			t.Fatal(r.Err)
		}
	}
	if _, err := broker.Ctl(t.Context(), "set_vm_memory_high_watermark", "0.00001"); err != nil {
		t.Fatal(err)
	}
	leases := batch("during", 20, 5)
	all = append(all, leases...)
	unknown := 0
	for round := range 5 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		began := time.Now()
		results := s.Deliver(ctx, leases)
		cancel()
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("a call of one second took %v", took)
		}
		for i, r := range results {
			switch r.Outcome {
			case core.Unknown:
				unknown++
				if round > 0 {
					t.Errorf("round %d: result %d is unknown (%v): the broker was known to take nothing", round, i, r.Err)
				}
			case core.Unavailable, core.NotAttempted:
			default:
				t.Errorf("round %d: result %d is %v (%v)", round, i, r.Outcome, r.Err)
			}
		}
		if round > 0 && (results[0].Outcome != core.Unavailable || !strings.Contains(results[0].Err.Error(), "alarms")) {
			t.Errorf("round %d: %v: %v", round, results[0].Outcome, results[0].Err)
		}
	}
	if err := s.Check(t.Context()); err == nil {
		t.Error("Check finds nothing")
	}
	// Another sink, which doesn't know of the alarm, and which is closed meanwhile.
	other := newSink(t, Config{URLs: []string{broker.URL()}, Exchange: q.name})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	other.Deliver(ctx, batch("other", 5, 1))
	cancel()
	began := time.Now()
	if err := other.Close(t.Context()); err != nil || time.Since(began) > 3*time.Second {
		t.Errorf("closing took %v: %v", time.Since(began), err)
	}
	if _, err := broker.Ctl(t.Context(), "set_vm_memory_high_watermark", "0.9"); err != nil {
		t.Fatal(err)
	}
	rest := leases
	eventually(t, func() bool {
		rest = left(rest, s.Deliver(t.Context(), rest))
		return len(rest) == 0
	})
	there := slices.DeleteFunc(q.ids(t), func(id string) bool { return strings.HasPrefix(id, "other") })
	if repeats := checkHistory(t, all, there); repeats > unknown {
		t.Errorf("%d repeats of %d that were unknown", repeats, unknown)
	}
}

func killedUnderLoad(t *testing.T, broker *services.RabbitMQ) {
	q := newQueue(t, broker.URL(), nil)
	s := newSink(t, Config{URLs: []string{broker.URL()}, Exchange: q.name})
	const callers = 3
	var all [callers][]core.Lease
	var unknown [callers]int
	stop, half := make(chan struct{}), make(chan struct{}, callers*1000)
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				leases := batch(fmt.Sprintf("c%d-%d", c, n), 10, 10)
				all[c] = append(all[c], leases...)
				for rest := leases; len(rest) > 0; {
					ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
					results := s.Deliver(ctx, rest)
					cancel()
					for _, r := range results {
						if r.Outcome == core.Unknown {
							unknown[c]++
						}
						if r.Outcome == core.Refused || r.Outcome == core.Rejected {
							t.Errorf("%v: %v", r.Outcome, r.Err)
						}
					}
					rest = left(rest, results)
					if len(rest) > 0 && t.Context().Err() != nil {
						return
					}
				}
				select {
				case half <- struct{}{}:
				default:
				}
			}
		})
	}
	work := func() { // until each caller has probably made some calls
		for range 6 {
			<-half
		}
	}
	work()
	broker.Kill()
	if err := broker.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	work()
	if err := broker.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	work()
	close(stop)
	wg.Wait()
	there, sum := q.ids(t), 0
	var leases []core.Lease
	for c := range callers {
		leases, sum = append(leases, all[c]...), sum+unknown[c]
	}
	repeats := checkHistory(t, leases, there)
	t.Logf("%d events, %d unknown, %d repeats", len(leases), sum, repeats)
	if repeats > sum {
		t.Errorf("%d repeats of %d that were unknown", repeats, sum)
	}
}
