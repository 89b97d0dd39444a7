package amqp

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
)

func TestUnroutableIsRefusedAndStopsItsKeyOnly(t *testing.T) {
	t.Parallel()
	url := servicetest.AMQPURL(t)
	q := newQueue(t, url, nil)
	s := newSink(t, Config{URLs: []string{url}, RoutingKey: "{{ .Type }}"}) // to queues by the default exchange
	var leases []core.Lease
	for i := range 6 {
		l := lease(fmt.Sprintf("id-%d", i), []string{"a", "b"}[i%2])
		l.Event.Type = q.name
		leases = append(leases, l)
	}
	leases[2].Event.Type = q.name + "-missing"
	results := s.Deliver(t.Context(), leases)
	outcomes(t, results, core.Delivered, core.Delivered, core.Refused, core.Delivered, core.NotAttempted, core.Delivered)
	if err := results[2].Err; !strings.Contains(err.Error(), q.name+"-missing") || !strings.Contains(err.Error(), "312 NO_ROUTE") {
		t.Errorf("the reason is %v", err)
	}
	if got := q.ids(t); !slices.Equal(sorted(got), []string{"id-0", "id-1", "id-3", "id-5"}) {
		t.Errorf("%v arrived", got)
	}
	admin(t, url, func(ch *amqp091.Channel) error {
		_, err := ch.QueueDelete(q.name, false, false, false)
		return err
	})
	outcomes(t, s.Deliver(t.Context(), leases[:1]), core.Refused)
}

func sorted(list []string) []string {
	list = slices.Clone(list)
	slices.Sort(list)
	return list
}

// Two events with one id in a call: which of them came back is still certain.
func TestEventsWithOneIDAreToldApart(t *testing.T) {
	t.Parallel()
	url := servicetest.AMQPURL(t)
	q := newQueue(t, url, nil)
	s := newSink(t, Config{URLs: []string{url}, RoutingKey: "{{ .Type }}"})
	leases := []core.Lease{lease("same", "a"), lease("same", "b"), lease("same", "c")}
	for i, queue := range []string{q.name + "-missing", q.name, q.name + "-missing"} {
		leases[i].Event.Type = queue
	}
	outcomes(t, s.Deliver(t.Context(), leases), core.Refused, core.Delivered, core.Refused)
}

func TestMissingExchangeFailsItsOwnMessageOnly(t *testing.T) {
	t.Parallel()
	url := servicetest.AMQPURL(t)
	q := newQueue(t, url, nil)
	s := newSink(t, Config{URLs: []string{url}, Exchange: "{{ .Aggregate }}"})
	leases := make([]core.Lease, 9)
	for i := range leases {
		leases[i] = lease(fmt.Sprintf("id-%d", i), fmt.Sprintf("key-%d", i))
		leases[i].Event.Aggregate = q.name
	}
	leases[4].Event.Aggregate = q.name + "-missing"
	results := s.Deliver(t.Context(), leases)
	for i, r := range results {
		if want := map[bool]core.Outcome{true: core.Refused, false: core.Delivered}[i == 4]; r.Outcome != want {
			t.Errorf("result %d is %v (%v), want %v", i, r.Outcome, r.Err, want)
		}
	}
	if err := results[4].Err; !strings.Contains(err.Error(), q.name+"-missing\" doesn't exist") {
		t.Errorf("the reason is %v", err)
	}
	if got := q.ids(t); len(got) != 8 {
		t.Errorf("%v arrived", got)
	}
}

// A deleted exchange is found out by a message that costs the channel. Nothing
// is lost by it, nothing fails that could arrive, and the next call knows.
func TestExchangeThatIsDeletedMeanwhile(t *testing.T) {
	t.Parallel()
	url := servicetest.AMQPURL(t)
	stays, goes := newQueue(t, url, nil), newQueue(t, url, nil)
	s := newSink(t, Config{URLs: []string{url}, Exchange: "{{ .Aggregate }}"})
	call := func(round int) []core.Lease {
		leases := make([]core.Lease, 20)
		for i := range leases {
			leases[i] = lease(fmt.Sprintf("id-%d-%d", round, i), fmt.Sprintf("key-%d", i))
			leases[i].Event.Aggregate = stays.name
		}
		leases[7].Event.Aggregate = goes.name
		return leases
	}
	for i, r := range s.Deliver(t.Context(), call(1)) {
		if r.Outcome != core.Delivered {
			t.Fatalf("result %d is %v (%v)", i, r.Outcome, r.Err)
		}
	}
	admin(t, url, func(ch *amqp091.Channel) error { return ch.ExchangeDelete(goes.name, false, false) })
	leases := call(2)
	results := s.Deliver(t.Context(), leases)
	there := stays.ids(t)
	for i, r := range results {
		arrived := slices.Contains(there, leases[i].Event.ID)
		switch {
		case i == 7 && r.Outcome != core.Refused:
			t.Errorf("the event without an exchange is %v (%v)", r.Outcome, r.Err)
		case i != 7 && r.Outcome != core.Unknown && r.Outcome != core.Delivered:
			t.Errorf("result %d is %v (%v)", i, r.Outcome, r.Err)
		case r.Outcome == core.Delivered && !arrived:
			t.Errorf("result %d is delivered and isn't there", i)
		}
	}
	for i, r := range s.Deliver(t.Context(), call(3)) {
		if want := map[bool]core.Outcome{true: core.Refused, false: core.Delivered}[i == 7]; r.Outcome != want {
			t.Errorf("in the next call result %d is %v (%v), want %v", i, r.Outcome, r.Err, want)
		}
	}
	admin(t, url, goes.declare)
	eventually(t, func() bool { return s.Deliver(t.Context(), call(4)[7:8])[0].Outcome == core.Delivered })
}

// eventually calls ok until it is true.
func eventually(t testing.TB, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(30 * time.Second); !ok(); <-tick.C {
		if time.Now().After(end) {
			t.Fatal("it didn't happen in 30 seconds")
		}
	}
}

// An exchange that exists and takes nothing from us can't be found out by
// looking for it. It costs others one repeat at most, however often it is tried.
func TestForbiddenExchangeCostsOthersOneRepeat(t *testing.T) {
	t.Parallel()
	url := servicetest.AMQPURL(t)
	q, internal := newQueue(t, url, nil), servicetest.Name(t)
	admin(t, url, func(ch *amqp091.Channel) error {
		return ch.ExchangeDeclare(internal, "fanout", true, false, true, false, nil)
	})
	t.Cleanup(func() {
		admin(t, url, func(ch *amqp091.Channel) error { return ch.ExchangeDelete(internal, false, false) })
	})
	s := newSink(t, Config{URLs: []string{url}, Exchange: "{{ .Aggregate }}"})
	repeats := 0
	for round := range 4 {
		leases := make([]core.Lease, 10)
		for i := range leases {
			leases[i] = lease(fmt.Sprintf("id-%d-%d", round, i), fmt.Sprintf("key-%d", i))
			leases[i].Event.Aggregate = q.name
		}
		leases[3].Event.Aggregate = internal
		for i, r := range s.Deliver(t.Context(), leases) {
			switch {
			case i == 3 && r.Outcome != core.Refused:
				t.Errorf("round %d: the forbidden event is %v (%v)", round, r.Outcome, r.Err)
			case i != 3 && r.Outcome == core.Unknown && round == 0:
				repeats++
			case i != 3 && r.Outcome != core.Delivered:
				t.Errorf("round %d: result %d is %v (%v)", round, i, r.Outcome, r.Err)
			}
		}
		// What is known of the exchange grows old, and it is tried again.
		forget(s, internal)
	}
	t.Logf("%d were unknown in the first call", repeats)
}

// forget makes what is known of an exchange old.
func forget(s *Sink, exchange string) {
	s.alive().change(exchange, func(x *exchangeState) { x.fresh = time.Time{} })
}

func TestFullQueueRefusesAndStopsTheKey(t *testing.T) {
	t.Parallel()
	url := servicetest.AMQPURL(t)
	q := newQueue(t, url, amqp091.Table{"x-max-length": int64(2), "x-overflow": "reject-publish"})
	s := newSink(t, Config{URLs: []string{url}, Exchange: q.name})
	var leases []core.Lease
	for i := range 5 {
		leases = append(leases, lease(fmt.Sprintf("id-%d", i), "one"))
	}
	results := s.Deliver(t.Context(), leases)
	outcomes(t, results, core.Delivered, core.Delivered, core.Refused, core.NotAttempted, core.NotAttempted)
	if err := results[2].Err; !strings.Contains(err.Error(), "basic.nack") {
		t.Errorf("the reason is %v", err)
	}
	if got := q.ids(t); !slices.Equal(got, []string{"id-0", "id-1"}) {
		t.Errorf("%v arrived", got)
	}
	outcomes(t, s.Deliver(t.Context(), leases[2:4]), core.Delivered, core.Delivered) // they were read
}

func TestTopologyIsDeclaredAndConflictsAreTold(t *testing.T) {
	t.Parallel()
	url := servicetest.AMQPURL(t)
	name := servicetest.Name(t)
	q := &queue{url: url, name: name}
	t.Cleanup(func() {
		admin(t, url, func(ch *amqp091.Channel) error {
			_ = ch.ExchangeDelete(name+"-in", false, false)
			_ = ch.ExchangeDelete(name, false, false)
			_, err := ch.QueueDelete(name, false, false, false)
			return err
		})
	})
	topology := Topology{
		Exchanges: []Exchange{{Name: name + "-in", Type: "fanout"}, {Name: name, Arguments: map[string]any{"alternate-exchange": "amq.fanout"}}},
		Queues:    []Queue{{Name: name, Arguments: map[string]any{"x-max-length": 1000, "x-single-active-consumer": true}}},
		Bindings:  []Binding{{Exchange: name + "-in", ToExchange: name}, {Exchange: name, Queue: name, RoutingKey: "thing.*"}},
	}
	for range 2 { // what is there already is fine
		s := newSink(t, Config{URLs: []string{url}, Exchange: name + "-in", Topology: topology})
		if err := s.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		outcomes(t, s.Deliver(t.Context(), []core.Lease{lease("id", "key")}), core.Delivered)
	}
	if got := q.ids(t); len(got) != 2 {
		t.Errorf("%v arrived", got)
	}
	topology.Exchanges[1].Type = "direct"
	s := newSink(t, Config{URLs: []string{url}, Exchange: name, Topology: topology})
	err := s.Check(t.Context())
	for _, want := range []string{`declaring exchange "` + name + `"`, "it exists with other settings", "406"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in %v", want, err)
		}
	}
	outcomes(t, s.Deliver(t.Context(), []core.Lease{lease("1", "a"), lease("2", "a"), lease("3", "b")}), core.Unavailable, core.NotAttempted, core.Unavailable)
}

func TestCheckLooksForAFixedExchange(t *testing.T) {
	t.Parallel()
	url := servicetest.AMQPURL(t)
	q := newQueue(t, url, nil)
	for exchange, want := range map[string]string{"": "", q.name: "", "{{ .Type }}": "", q.name + "-missing": "doesn't exist"} {
		err := newSink(t, Config{URLs: []string{url}, Exchange: exchange}).Check(t.Context())
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("exchange %q: %v", exchange, err)
		}
	}
}
