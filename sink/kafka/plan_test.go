package kafka

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/gooutbox/outbox/core"
)

// ways are the reasons for which an event fails before anything is sent, in a
// sink with MaxMessageBytes of 5000 and a topic "small" that takes 3000.
var ways = []struct {
	name  string
	spoil func(*core.Event)
	want  core.Outcome
	says  string
}{
	{"header", func(e *core.Event) { e.Headers = map[string]string{"ce_x": "1"} }, core.Rejected, "ce_x"},
	{"no id", func(e *core.Event) { e.ID = "" }, core.Rejected, "ID"},
	{"illegal topic", func(e *core.Event) { e.Type = "no topic!" }, core.Rejected, "Type"},
	{"missing topic", func(e *core.Event) { e.Type = "missing" }, core.Refused, `"missing"`},
	{"over the sink's limit", func(e *core.Event) { e.Payload = make([]byte, 5000) }, core.Rejected, "limit 5000"},
	{"over the topic's limit", func(e *core.Event) { e.Type, e.Payload = "small", make([]byte, 3000) }, core.Rejected, "limit 3000"},
}

// What fails before anything is sent stops what comes after it in its key, not
// what comes before, which is sent in the same call.
func TestEventThatFailsEarlyStopsOnlyLaterOnes(t *testing.T) {
	t.Parallel()
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			c := fake(t, []string{"order.placed", "order.paid"})
			if err := c.CreateTopic("small", 1, map[string]string{"max.message.bytes": "3000"}); err != nil {
				t.Fatal(err)
			}
			seen := record(c)
			s := open(t, Config{Brokers: c.ListenAddrs(), MaxMessageBytes: 5000})
			leases := []core.Lease{
				lease("good-1", "K"), lease("other-1", "L"), lease("good-2", "K"), lease("bad", "K"),
				lease("other-2", "L"), lease("late-1", "K"), lease("late-2", "K"),
			}
			leases[2].Event.Type = "order.paid" // in the wave after the first
			way.spoil(&leases[3].Event)
			results := s.Deliver(t.Context(), leases)
			want := []core.Outcome{
				core.Delivered, core.Delivered, core.Delivered, way.want,
				core.Delivered, core.NotAttempted, core.NotAttempted,
			}
			if got := outcomes(results); !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
			for i, r := range results {
				if r.Outcome != core.Delivered && r.Err == nil {
					t.Errorf("result %d has no reason", i)
				}
			}
			if text := fmt.Sprint(results[3].Err); !strings.Contains(text, way.says) {
				t.Errorf("the reason is %q, want %s in it", text, way.says)
			}
			for _, set := range seen.all() {
				for _, id := range []string{"bad", "late-1", "late-2"} {
					if set.has(id) {
						t.Errorf("%s was sent", id)
					}
				}
			}
		})
	}
}

// Whatever was found out early, the answers of a key are a prefix: after what
// was not delivered comes nothing but events that were not attempted.
func TestEventThatFailsEarlyComesAfterAnEarlierFailure(t *testing.T) {
	t.Parallel()
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			c := fake(t, []string{"order.placed", "order.paid"})
			if err := c.CreateTopic("small", 1, map[string]string{"max.message.bytes": "3000"}); err != nil {
				t.Fatal(err)
			}
			seen := refuse(c, func(s sent) int16 {
				if s.has("good-2") {
					return 44
				}
				return 0
			})
			s := open(t, Config{Brokers: c.ListenAddrs(), MaxMessageBytes: 5000})
			leases := []core.Lease{lease("good-1", "K"), lease("good-2", "K"), lease("middle", "K"), lease("bad", "K"), lease("late", "K")}
			leases[1].Event.Type = "order.paid" // alone in its record set
			way.spoil(&leases[3].Event)
			results := s.Deliver(t.Context(), leases)
			want := []core.Outcome{core.Delivered, core.Refused, core.NotAttempted, core.NotAttempted, core.NotAttempted}
			if got := outcomes(results); !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
			if n := len(seen.all()); n != 2 {
				t.Errorf("%d record sets were sent, want two", n)
			}
		})
	}
}

// Events of other topics wait with the one that is to be created, so that they
// must not do so again and again.
func TestTopicsThatAreNotCreatedHoldUpOthersOnce(t *testing.T) {
	t.Parallel()
	c := fake(t, []string{"order.placed"})
	var asked atomic.Int32
	c.ControlKey(int16(kmsg.Metadata), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		asked.Add(1)
		return nil, nil, false
	})
	s := open(t, Config{Brokers: c.ListenAddrs(), CreateTopics: true})
	s.cluster.wait = 50 * time.Millisecond
	for round := range 4 {
		before := asked.Load()
		missing := lease("1", "a")
		missing.Event.Type = fmt.Sprintf("missing-%d", round)
		results := s.Deliver(t.Context(), []core.Lease{missing, lease("2", "b")})
		if got, want := outcomes(results), []core.Outcome{core.Refused, core.Delivered}; !slices.Equal(got, want) {
			t.Errorf("round %d: got %v, want %v", round, got, want)
		}
		if n := asked.Load() - before; round == 0 && n < 2 || round > 0 && n != 1 {
			t.Errorf("round %d: the brokers were asked %d times", round, n)
		}
	}
}

func TestTopicsThatAreRememberedAreBounded(t *testing.T) {
	t.Parallel()
	c := fake(t, []string{"order.placed"}, kfake.SeedTopics(1, "order.paid"))
	s := open(t, Config{Brokers: c.ListenAddrs()})
	later := time.Now().Add(time.Hour)
	fill := func(from, to int, err error) {
		s.cluster.mu.Lock()
		defer s.cluster.mu.Unlock()
		for i := from; i < to; i++ {
			name := fmt.Sprintf("topic-%d", i)
			s.cluster.topics[name] = &topic{name: name, fresh: later, err: err}
		}
	}
	for _, round := range []struct {
		typ  string
		err  error
		most int
	}{{"order.placed", core.MarkUnavailable(errCallEnded), 10}, {"order.paid", nil, maxTopics / 2}} {
		fill(0, maxTopics, round.err)
		l := lease("1", "a")
		l.Event.Type = round.typ
		if r := s.Deliver(t.Context(), []core.Lease{l})[0]; r.Outcome != core.Delivered {
			t.Errorf("%v (%v)", r.Outcome, r.Err)
		}
		s.cluster.mu.Lock()
		if n := len(s.cluster.topics); n > round.most {
			t.Errorf("%d topics are remembered, want at most %d", n, round.most)
		}
		s.cluster.mu.Unlock()
	}
}

// A topic that nothing can be learnt of holds up no other.
func TestTopicsThatAreKnownNeedNoNewsOfOthers(t *testing.T) {
	t.Parallel()
	c := fake(t, []string{"order.placed", "order.paid"})
	s := open(t, Config{Brokers: c.ListenAddrs()})
	known, other := lease("1", "a"), lease("2", "b")
	other.Event.Type = "order.paid"
	if r := s.Deliver(t.Context(), []core.Lease{known})[0]; r.Outcome != core.Delivered {
		t.Fatalf("%v (%v)", r.Outcome, r.Err)
	}
	c.ControlKey(int16(kmsg.Metadata), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		return nil, errors.New("cut"), true
	})
	results := s.Deliver(t.Context(), []core.Lease{other, known, lease("3", "b")})
	if got, want := outcomes(results), []core.Outcome{core.Unavailable, core.Delivered, core.NotAttempted}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v (%v)", got, want, results[0].Err)
	}
}
