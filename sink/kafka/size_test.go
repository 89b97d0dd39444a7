package kafka

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
)

// A broker closes the connection on a request that is too large for it, which
// would look like a broker that can't be reached, for ever.
func TestRequestThatNoBrokerReadsIsRejected(t *testing.T) {
	t.Parallel()
	const largest = maxRequestBytes // what is larger goes alone
	noise := make([]byte, largest+1<<20)
	if _, err := rand.Read(noise); err != nil {
		t.Fatal(err)
	}
	for compression := range compressions {
		t.Run(string(compression), func(t *testing.T) {
			t.Parallel()
			c := fake(t, nil)
			if err := c.CreateTopic("huge", 3, map[string]string{"max.message.bytes": fmt.Sprint(64 << 20)}); err != nil {
				t.Fatal(err)
			}
			seen := record(c)
			s := open(t, Config{Brokers: c.ListenAddrs(), Topic: "huge", Compression: compression})
			s.cluster.dial.largest = largest
			leases := []core.Lease{
				lease("1", "a"), lease("2", "a"), lease("3", "a"), lease("4", "b"),
				lease("5", "c"), lease("6", "d"),
			}
			leases[1].Event.Payload = noise
			leases[4].Event.Payload = noise[:largest] // too large by its head alone
			leases[5].Event.Payload = make([]byte, 2*largest)
			want := []core.Outcome{core.Delivered, core.Rejected, core.NotAttempted, core.Delivered, core.Rejected, core.Delivered}
			if compression == CompressionNone {
				want[5] = core.Rejected
			}
			for range 2 { // and it goes on
				results := s.Deliver(t.Context(), leases)
				if got := outcomes(results); !slices.Equal(got, want) {
					t.Fatalf("got %v, want %v (%v)", got, want, results[1].Err)
				}
				for _, i := range []int{1, 4} {
					field, ok := errors.AsType[*core.FieldError](results[i].Err)
					if !ok || field.Limit != largest || field.Size <= largest {
						t.Errorf("result %d: the reason is %v, want one with size and limit", i, results[i].Err)
					}
				}
			}
			for _, set := range seen.all() {
				if len(set.bytes) > largest {
					t.Errorf("a set of %d bytes was sent", len(set.bytes))
				}
			}
		})
	}
}

func TestRequestOf100MiBIsRejectedByARealTopicThatTakesMore(t *testing.T) {
	t.Parallel()
	topic := servicetest.Topic(t, 1, "max.message.bytes=2000000000")
	s := open(t, Config{Brokers: servicetest.Kafka(t), Topic: topic})
	huge := lease("2", "a")
	huge.Event.Payload = make([]byte, largestRequest-10)
	results := s.Deliver(t.Context(), []core.Lease{lease("1", "a"), huge, lease("3", "a"), lease("4", "b")})
	want := []core.Outcome{core.Delivered, core.Rejected, core.NotAttempted, core.Delivered}
	if got := outcomes(results); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v (%v)", got, want, results[1].Err)
	}
}

// A topic may take sets that are larger than what a broker reads.
func TestSetsKeepWithinARequest(t *testing.T) {
	t.Parallel()
	c := fake(t, nil)
	if err := c.CreateTopic("huge", 1, map[string]string{"max.message.bytes": "2000000000"}); err != nil {
		t.Fatal(err)
	}
	seen := refuse(c, func(sent) int16 { return 0 })
	s := open(t, Config{Brokers: c.ListenAddrs(), Topic: "huge"})
	leases := make([]core.Lease, 20)
	for i := range leases {
		leases[i] = lease(fmt.Sprint(i), "key")
		leases[i].Event.Payload = make([]byte, 1<<20)
	}
	for i, r := range s.Deliver(t.Context(), leases) {
		if r.Outcome != core.Delivered {
			t.Errorf("result %d: %v (%v)", i, r.Outcome, r.Err)
		}
	}
	for _, set := range seen.all() {
		if len(set.bytes) > maxRequestBytes {
			t.Errorf("a set of %d bytes, want at most %d", len(set.bytes), maxRequestBytes)
		}
	}
}

// An event that is too large for its topic is not carried to the broker, and
// a limit is read again before it rejects: a rejection is for good.
func TestLimitOfTheTopicIsConfirmedBeforeItRejects(t *testing.T) {
	t.Parallel()
	c := fake(t, nil)
	if err := c.CreateTopic("small", 1, map[string]string{"max.message.bytes": "3000"}); err != nil {
		t.Fatal(err)
	}
	seen := record(c)
	s := open(t, Config{Brokers: c.ListenAddrs(), Topic: "small"})
	big := lease("big", "key")
	big.Event.Payload = make([]byte, 4000)
	deliver := func(ctx context.Context) core.Result { return s.Deliver(ctx, []core.Lease{big})[0] }
	for range 2 {
		r := deliver(t.Context())
		if field, ok := errors.AsType[*core.FieldError](r.Err); r.Outcome != core.Rejected || !ok || field.Limit != 3000 {
			t.Errorf("%v (%v), want rejected with the limit", r.Outcome, r.Err)
		}
	}
	if n := len(seen.all()); n != 0 {
		t.Errorf("%d sets were sent", n)
	}
	// Nobody tells the limit any more: the broker decides.
	c.ControlKey(int16(kmsg.DescribeConfigs), func(kmsg.Request) (kmsg.Response, error, bool) {
		return nil, errors.New("cut"), true
	})
	if r := deliver(t.Context()); r.Outcome != core.Rejected || len(seen.all()) != 1 {
		t.Errorf("%v (%v) after %d sets, want rejected by the broker", r.Outcome, r.Err, len(seen.all()))
	}
	if r := deliver(t.Context()); r.Outcome != core.Rejected || len(seen.all()) != 1 {
		t.Errorf("%v (%v) after %d sets, want rejected before it is sent", r.Outcome, r.Err, len(seen.all()))
	}
	alter(t, c.ListenAddrs(), "small", "max.message.bytes", "9000")
	if r := deliver(t.Context()); r.Outcome != core.Delivered {
		t.Errorf("after the limit was raised: %v (%v), want delivered", r.Outcome, r.Err)
	}
}
