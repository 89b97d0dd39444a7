package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/gooutbox/outbox/core"
)

func TestEachCodeOfABrokerHasItsOutcome(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		code int16
		name string
		want core.Outcome
	}{
		{-1, "unknown server error", core.Unknown},
		{2, "corrupt message", core.Rejected},
		{3, "unknown topic or partition", core.Unavailable},
		{5, "leader not available", core.Unavailable},
		{6, "not leader", core.Unavailable},
		{7, "request timed out", core.Unknown},
		{10, "message too large", core.Rejected},
		{17, "invalid topic", core.Refused},
		{18, "record list too large", core.Rejected},
		{19, "not enough replicas", core.Unavailable},
		{20, "not enough replicas after append", core.Unknown},
		{21, "invalid acks", core.Unavailable},
		{29, "topic authorization failed", core.Refused},
		{31, "cluster authorization failed", core.Unavailable},
		{32, "invalid timestamp", core.Rejected},
		{44, "policy violation", core.Refused},
		{56, "storage error", core.Unavailable},
		{74, "fenced leader epoch", core.Unavailable},
		{87, "invalid record", core.Rejected},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cluster := fake(t, []string{"order.placed"})
			refuse(cluster, func(sent) int16 { return c.code })
			s := open(t, Config{Brokers: cluster.ListenAddrs()})
			results := s.Deliver(t.Context(), []core.Lease{lease("1", "k"), lease("2", "k")})
			// Two of one key: in one set, and only an unknown outcome says
			// anything of the second.
			second := core.NotAttempted
			if c.want == core.Unknown {
				second = core.Unknown
			}
			if got, want := outcomes(results), []core.Outcome{c.want, second}; !slices.Equal(got, want) {
				t.Errorf("code %d gives %v, want %v (%v)", c.code, got, want, results[0].Err)
			}
		})
	}
}

func TestConnectionLostAfterTheRequestIsUnknown(t *testing.T) {
	t.Parallel()
	c := fake(t, []string{"order.placed"})
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		return nil, errors.New("cut"), true
	})
	s := open(t, Config{Brokers: c.ListenAddrs()})
	results := s.Deliver(t.Context(), []core.Lease{lease("1", "a"), lease("2", "b"), lease("3", "a")})
	for i, r := range results {
		if r.Outcome != core.Unknown {
			t.Errorf("result %d: %v (%v), want unknown", i, r.Outcome, r.Err)
		}
	}
	// The sink goes on with another connection.
	if r := s.Deliver(t.Context(), []core.Lease{lease("1", "a")})[0]; r.Outcome != core.Delivered {
		t.Errorf("the next call: %v (%v)", r.Outcome, r.Err)
	}
}

func TestAnswerThatComesTooLateIsUnknown(t *testing.T) {
	t.Parallel()
	c := fake(t, []string{"order.placed"})
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		return nil, nil, true // the broker takes the request and stays silent
	})
	s := open(t, Config{Brokers: c.ListenAddrs(), RequestTimeout: 200 * time.Millisecond})
	began := time.Now()
	r := s.Deliver(context.Background(), []core.Lease{lease("1", "a")})[0]
	if r.Outcome != core.Unknown || !strings.Contains(r.Err.Error(), "no answer in time") {
		t.Errorf("%v (%v), want unknown for want of an answer", r.Outcome, r.Err)
	}
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("took %v, with a request timeout of 200 ms", took)
	}
}

// The broker must give up before the sink does, or its answer is never heard.
func TestBrokerIsToldLessThanTheRequestTimeout(t *testing.T) {
	t.Parallel()
	c := fake(t, []string{"order.placed"})
	told := make(chan int32, 1)
	c.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		told <- req.(*kmsg.ProduceRequest).TimeoutMillis
		return nil, nil, false
	})
	s := open(t, Config{Brokers: c.ListenAddrs(), RequestTimeout: 8 * time.Second})
	s.Deliver(t.Context(), []core.Lease{lease("1", "a")})
	if got := <-told; got < 4000 || got >= 8000 {
		t.Errorf("the broker was told %d ms, of 8000", got)
	}
}

func TestLeaderIsLearntAnewAfterItMoved(t *testing.T) {
	t.Parallel()
	c := fake(t, []string{"order.placed"}, kfake.NumBrokers(3))
	s := open(t, Config{Brokers: c.ListenAddrs()})
	l := lease("1", "a")
	if r := s.Deliver(t.Context(), []core.Lease{l})[0]; r.Outcome != core.Delivered {
		t.Fatalf("%v (%v)", r.Outcome, r.Err)
	}
	p := partitionOf("a", 3)
	for i := range int32(3) {
		if err := c.MoveTopicPartition("order.placed", p, (c.LeaderFor("order.placed", p)+1+i)%3); err != nil {
			t.Fatal(err)
		}
		first := s.Deliver(t.Context(), []core.Lease{l})[0]
		if first.Outcome != core.Unavailable && first.Outcome != core.Delivered {
			t.Errorf("after a move: %v (%v), want unavailable", first.Outcome, first.Err)
		}
		if r := s.Deliver(t.Context(), []core.Lease{l})[0]; r.Outcome != core.Delivered {
			t.Errorf("the call after that: %v (%v), want delivered", r.Outcome, r.Err)
		}
	}
}

func TestOnePartitionFailsAlone(t *testing.T) {
	t.Parallel()
	for _, code := range []int16{6, 7, 29} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			t.Parallel()
			c := fake(t, []string{"order.placed"})
			refuse(c, func(s sent) int16 {
				if s.partition == 1 {
					return code
				}
				return 0
			})
			s := open(t, Config{Brokers: c.ListenAddrs()})
			var leases []core.Lease
			for i := range 60 {
				leases = append(leases, lease(fmt.Sprintf("id-%d", i), fmt.Sprintf("key-%d", i%30)))
			}
			for i, r := range s.Deliver(t.Context(), leases) {
				if bad := partitionOf(leases[i].Event.AggregateID, 3) == 1; bad == (r.Outcome == core.Delivered) {
					t.Errorf("result %d of partition 1: %v, is %v (%v)", i, bad, r.Outcome, r.Err)
				}
			}
		})
	}
}

// A set that is refused as a whole is sent again one by one, in order, and a
// key stops at its failure.
func TestSetRefusedAsAWholeGoesSingly(t *testing.T) {
	t.Parallel()
	for _, code := range []int16{2, 10, 18, 32, 87} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			t.Parallel()
			c := fake(t, []string{"order.placed"}, kfake.SeedTopics(1, "one"))
			seen := refuse(c, func(s sent) int16 {
				if s.has("bad") {
					return code
				}
				return 0
			})
			s := open(t, Config{Brokers: c.ListenAddrs(), Topic: "one"})
			results := s.Deliver(t.Context(), []core.Lease{
				lease("a-1", "a"), lease("b-1", "b"), lease("bad-a-2", "a"), lease("b-2", "b"), lease("a-3", "a"), lease("b-3", "b"),
			})
			want := []core.Outcome{core.Delivered, core.Delivered, core.Rejected, core.Delivered, core.NotAttempted, core.Delivered}
			if got := outcomes(results); !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
			sets := seen.all()
			if len(sets) != 6 || sets[0].records != 6 {
				t.Fatalf("%d sets were sent, want one of six and five of one", len(sets))
			}
			for i, id := range []string{"a-1", "b-1", "bad-a-2", "b-2", "b-3"} {
				if got := sets[i+1]; got.records != 1 || !got.has(id) {
					t.Errorf("set %d has %d records, want one, of %s", i+1, got.records, id)
				}
			}
			for i, want := range []string{"one-0@0", "one-0@1", "", "one-0@2", "", "one-0@3"} {
				if results[i].Receipt != want {
					t.Errorf("receipt %d is %q, want %q", i, results[i].Receipt, want)
				}
			}
		})
	}
}

// While a partition's records go singly, an outcome that is no fault of the
// record ends that partition.
func TestSinglesStopWhenTheBrokerFails(t *testing.T) {
	t.Parallel()
	c := fake(t, []string{"order.placed"}, kfake.SeedTopics(1, "one"))
	refuse(c, func(s sent) int16 {
		switch {
		case s.records > 1:
			return 87
		case s.has("second"):
			return 7
		}
		return 0
	})
	s := open(t, Config{Brokers: c.ListenAddrs(), Topic: "one"})
	got := outcomes(s.Deliver(t.Context(), []core.Lease{lease("first", "a"), lease("second", "b"), lease("third", "c")}))
	if want := []core.Outcome{core.Delivered, core.Unknown, core.NotAttempted}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Events of one key in two topics: the second topic waits for the first, and
// gets nothing when that fails.
func TestKeyKeepsItsOrderAcrossTopics(t *testing.T) {
	t.Parallel()
	c := fake(t, []string{"placed", "paid"})
	seen := refuse(c, func(s sent) int16 {
		if s.has("bad") {
			return 7
		}
		return 0
	})
	s := open(t, Config{Brokers: c.ListenAddrs()})
	of := func(id, key, typ string) core.Lease {
		l := lease(id, key)
		l.Event.Type = typ
		return l
	}
	if partitionOf("good", 3) == partitionOf("failing2", 3) {
		t.Fatal("the keys share a partition, and so a record set")
	}
	results := s.Deliver(t.Context(), []core.Lease{
		of("g-1", "good", "placed"), of("bad-1", "failing2", "placed"),
		of("g-2", "good", "paid"), of("f-2", "failing2", "paid"),
		of("g-3", "good", "placed"), of("f-3", "failing2", "placed"),
	})
	want := []core.Outcome{core.Delivered, core.Unknown, core.Delivered, core.NotAttempted, core.Delivered, core.NotAttempted}
	if got := outcomes(results); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	var order []string
	for _, set := range seen.all() {
		for _, id := range []string{"g-1", "g-2", "g-3", "f-2", "f-3"} {
			if set.has(id) {
				order = append(order, id)
			}
		}
	}
	if want := []string{"g-1", "g-2", "g-3"}; !slices.Equal(order, want) {
		t.Errorf("sent %v, want %v", order, want)
	}
}

// A broker that is silent costs a call the time of one request, not of one for
// each change of topic.
func TestSilentBrokerIsAskedOnceACall(t *testing.T) {
	t.Parallel()
	c := fake(t, []string{"placed", "paid"}, kfake.NumBrokers(2))
	for p := range int32(3) {
		for node, topic := range []string{"placed", "paid"} {
			if err := c.MoveTopicPartition(topic, p, int32(node)); err != nil {
				t.Fatal(err)
			}
		}
	}
	var asked atomic.Int32
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if c.CurrentNode() != 1 {
			return nil, nil, false
		}
		asked.Add(1)
		return nil, nil, true
	})
	s := open(t, Config{Brokers: c.ListenAddrs(), RequestTimeout: 300 * time.Millisecond})
	leases := []core.Lease{lease("1", "a"), lease("2", "b"), lease("3", "b")}
	for i, typ := range []string{"paid", "placed", "paid"} {
		leases[i].Event.Type = typ
	}
	results := s.Deliver(t.Context(), leases)
	if got, want := outcomes(results), []core.Outcome{core.Unknown, core.Delivered, core.NotAttempted}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("the silent broker was asked %d times", n)
	}
}

func TestSetsKeepWithinTheTopicsLimit(t *testing.T) {
	t.Parallel()
	const limit = 5000
	for _, set := range []struct {
		name        string
		topic, sink int
	}{{"of the topic", limit, 0}, {"of the configuration", 1 << 20, limit}} {
		t.Run(set.name, func(t *testing.T) {
			t.Parallel()
			c := fake(t, nil)
			if err := c.CreateTopic("small", 1, map[string]string{"max.message.bytes": fmt.Sprint(set.topic)}); err != nil {
				t.Fatal(err)
			}
			seen := record(c)
			s := open(t, Config{Brokers: c.ListenAddrs(), Topic: "small", MaxMessageBytes: set.sink})
			var leases []core.Lease
			for i := range 200 {
				l := lease(fmt.Sprintf("id-%d", i), "key")
				l.Event.Payload = make([]byte, 100+i*7)
				leases = append(leases, l)
			}
			for i, r := range s.Deliver(t.Context(), leases) {
				if r.Outcome != core.Delivered || r.Receipt != fmt.Sprintf("small-0@%d", i) {
					t.Fatalf("result %d: %v %s (%v)", i, r.Outcome, r.Receipt, r.Err)
				}
			}
			sets, total := seen.all(), 0
			for _, s := range sets {
				if total += len(s.bytes); len(s.bytes) > limit {
					t.Errorf("a set of %d bytes, the limit is %d", len(s.bytes), limit)
				}
			}
			if fewest := (total + limit - 1) / limit; len(sets) > 2*fewest {
				t.Errorf("%d sets for %d bytes, %d would do", len(sets), total, fewest)
			}
		})
	}
}

func TestTooLargeEventIsRejectedWithSizeAndLimit(t *testing.T) {
	t.Parallel()
	for _, sink := range []int{0, 3000} {
		c := fake(t, nil)
		if err := c.CreateTopic("small", 1, map[string]string{"max.message.bytes": "3000"}); err != nil {
			t.Fatal(err)
		}
		s := open(t, Config{Brokers: c.ListenAddrs(), Topic: "small", MaxMessageBytes: sink})
		big := lease("big", "key")
		big.Event.Payload = make([]byte, 4000)
		r := s.Deliver(t.Context(), []core.Lease{big})[0]
		field, ok := errors.AsType[*core.FieldError](r.Err)
		if r.Outcome != core.Rejected || !ok || field.Limit != 3000 || field.Size < 4000 || field.Size > 5000 {
			t.Errorf("limit of the sink %d: %v (%v), want rejected with size and limit", sink, r.Outcome, r.Err)
		}
	}
}

func TestQuotaOfTheBrokerIsKept(t *testing.T) {
	t.Parallel()
	c := fake(t, []string{"order.placed"})
	c.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		res := req.ResponseKind().(*kmsg.ProduceResponse)
		res.ThrottleMillis = 60_000
		for _, s := range setsOf(req.(*kmsg.ProduceRequest)) {
			topic := kmsg.NewProduceResponseTopic()
			topic.Topic = s.topic
			p := kmsg.NewProduceResponseTopicPartition()
			p.Partition = s.partition
			topic.Partitions = append(topic.Partitions, p)
			res.Topics = append(res.Topics, topic)
		}
		return res, nil, true
	})
	s := open(t, Config{Brokers: c.ListenAddrs()})
	if r := s.Deliver(t.Context(), []core.Lease{lease("1", "a")})[0]; r.Outcome != core.Delivered {
		t.Fatalf("%v (%v)", r.Outcome, r.Err)
	}
	results := s.Deliver(t.Context(), []core.Lease{lease("2", "a"), lease("3", "a"), lease("4", "b")})
	if r := results[0]; r.Outcome != core.Throttled || r.RetryAfter < 50*time.Second || r.RetryAfter > time.Minute {
		t.Errorf("%v after %v (%v), want throttled for a minute", r.Outcome, r.RetryAfter, r.Err)
	}
	if got := results[1].Outcome; got != core.NotAttempted {
		t.Errorf("the next of the key: %v", got)
	}
}

func TestUnknownTopicIsRefusedByName(t *testing.T) {
	t.Parallel()
	c := fake(t, []string{"order.placed"})
	s := open(t, Config{Brokers: c.ListenAddrs()})
	missing := lease("1", "a")
	missing.Event.Type = "order.lost"
	results := s.Deliver(t.Context(), []core.Lease{missing, lease("2", "b"), lease("3", "a")})
	if got, want := outcomes(results), []core.Outcome{core.Refused, core.Delivered, core.NotAttempted}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if !strings.Contains(results[0].Err.Error(), `"order.lost"`) {
		t.Errorf("the reason %q doesn't name the topic", results[0].Err)
	}
	if err := c.CreateTopic("order.lost", 1, nil); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); ; {
		r := s.Deliver(t.Context(), []core.Lease{missing})[0]
		if r.Outcome == core.Delivered {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the topic is there: %v (%v)", r.Outcome, r.Err)
		}
	}
}

func TestTopicWithoutRightIsRefusedAlone(t *testing.T) {
	t.Parallel()
	c := fake(t, []string{"order.placed", "secret"}, kfake.EnableSASL(), kfake.EnableACLs(),
		kfake.User("PLAIN", "relay", "pass", kfake.ACL{
			Resource: kmsg.ACLResourceTypeTopic, Name: "order.placed", Pattern: kmsg.ACLResourcePatternTypeLiteral,
			Operation: kmsg.ACLOperationAll, Allow: true,
		}))
	s := open(t, Config{Brokers: c.ListenAddrs(), SASL: &SASL{Plain, "relay", "pass"}})
	secret := lease("1", "a")
	secret.Event.Type = "secret"
	results := s.Deliver(t.Context(), []core.Lease{secret, lease("2", "b")})
	if got, want := outcomes(results), []core.Outcome{core.Refused, core.Delivered}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v (%v)", got, want, results[0].Err)
	}
}

func TestNobodyThereIsUnavailable(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	s := open(t, Config{Brokers: []string{addr}})
	results := s.Deliver(t.Context(), []core.Lease{lease("1", "a"), lease("2", "a"), lease("3", "b")})
	if got, want := outcomes(results), []core.Outcome{core.Unavailable, core.NotAttempted, core.Unavailable}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if err := s.Check(t.Context()); err == nil || !strings.Contains(err.Error(), addr) {
		t.Errorf("Check tells %v, without the address", err)
	}
}

func TestCloseEndsWithItsContext(t *testing.T) {
	t.Parallel()
	c := fake(t, []string{"order.placed"})
	reached := make(chan struct{})
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		close(reached)
		return nil, nil, true // silence
	})
	s := open(t, Config{Brokers: c.ListenAddrs(), RequestTimeout: time.Hour})
	answer := make(chan core.Result)
	go func() { answer <- s.Deliver(context.Background(), []core.Lease{lease("1", "a")})[0] }()
	<-reached
	began := time.Now()
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if r := <-answer; r.Outcome != core.Unknown {
		t.Errorf("the call that was cut off: %v (%v), want unknown", r.Outcome, r.Err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("Close took %v", took)
	}
}

func TestIdleConnectionThatTheBrokerClosedIsNotUsed(t *testing.T) {
	t.Parallel()
	c := fake(t, []string{"order.placed"})
	s := open(t, Config{Brokers: c.ListenAddrs()})
	if r := s.Deliver(t.Context(), []core.Lease{lease("1", "a")})[0]; r.Outcome != core.Delivered {
		t.Fatalf("%v (%v)", r.Outcome, r.Err)
	}
	b := s.cluster.nodes[0]
	b.mu.Lock()
	idle := b.idle[0]
	// As if it had been idle for a while, and the broker gone.
	idle.used = idle.used.Add(-2 * quietAfter)
	b.mu.Unlock()
	if !idle.usable(time.Now()) {
		t.Error("a quiet connection that is open counts as closed")
	}
	c.Close()
	for end := time.Now().Add(10 * time.Second); idle.usable(time.Now()); {
		if time.Now().After(end) {
			t.Fatal("a connection that the broker closed counts as usable")
		}
	}
}
