package sqs

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gooutbox/outbox/core"
)

// Whatever events there are, a batch keeps every limit, which the server checks,
// and a key never has two messages under way.
func TestBatchesKeepEveryLimit(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // no secret
		s := newServer(t, "a", "b.fifo")
		watch := &watcher{under: map[string]int{}}
		s.on(func(b *batch) reaction { watch.look(t, b); return reaction{} })
		leases := make([]core.Lease, 60)
		want := map[string][]string{}
		for i := range leases {
			key := fmt.Sprintf("key %d", random.IntN(12))
			leases[i] = event(fmt.Sprintf("id-%03d", i), key, "")
			ev := &leases[i].Event
			ev.Tenant = []string{"a", "b.fifo"}[random.IntN(2)]
			ev.Payload = bytes.Repeat([]byte{byte(random.IntN(300) % 256)}, random.IntN(1<<uint(random.IntN(20)))) //nolint:gosec // in range
			ev.Headers = map[string]string{}
			for n := range random.IntN(14) {
				ev.Headers[[]string{"x-", "!", "AWS.", "é"}[random.IntN(4)]+fmt.Sprint(n)] = strings.Repeat("v", random.IntN(4)) + []string{"", "\x01", "\uffff"}[random.IntN(3)]
			}
			want[key] = append(want[key], ev.ID)
		}
		sink := newSink(t, s.http.URL, Config{Queue: "{{ .Tenant }}"})
		results := sink.Deliver(t.Context(), leases)
		for i, r := range results {
			if r.Outcome != core.Delivered {
				t.Errorf("seed %d: event %d is %v (%v)", seed, i, r.Outcome, r.Err)
			}
		}
		got := map[string][]string{}
		for _, b := range s.sentBatches() {
			seen := map[string]bool{}
			for i := range b.Entries {
				m := b.Entries[i].read(t)
				key := m.headers["ce_partitionkey"]
				if seen[key] {
					t.Errorf("seed %d: two messages of %s in one batch", seed, key)
				}
				seen[key] = true
				got[key] = append(got[key], m.headers["ce_id"])
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("seed %d: sent in another order: %v, want %v", seed, got, want)
		}
		for _, queue := range []string{"a", "b.fifo"} {
			for _, m := range s.messages(t, queue) {
				i := slices.IndexFunc(leases, func(l core.Lease) bool { return l.Event.ID == m.ID })
				if !bytes.Equal(m.Payload, leases[i].Event.Payload) {
					t.Errorf("seed %d: %s came with another payload", seed, m.ID)
				}
			}
		}
	}
}

// watcher finds keys with two messages under way: a request that comes while
// another with the same key has not been answered.
type watcher struct {
	mu    sync.Mutex
	under map[string]int
}

func (w *watcher) look(t *testing.T, b *batch) {
	w.add(t, b, 1)
	runtime.Gosched() // lets others come in between
	w.add(t, b, -1)
}

func (w *watcher) add(t *testing.T, b *batch, by int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range b.Entries {
		key := b.Entries[i].read(t).headers["ce_partitionkey"]
		if w.under[key] += by; w.under[key] > 1 {
			t.Errorf("key %s has two messages under way", key)
		}
	}
}

// Two MiB of small messages and one MiB in two: the sum counts.
func TestTheSumOfABatchIsBounded(t *testing.T) {
	t.Parallel()
	s := newServer(t, "orders")
	leases := several(10)
	for i := range leases {
		leases[i].Event.Payload = bytes.Repeat([]byte("x"), 200<<10)
	}
	results := newSink(t, s.http.URL, Config{Queue: "orders"}).Deliver(t.Context(), leases)
	if got, want := outcomes(results), strings.TrimSuffix(strings.Repeat("delivered, ", 10), ", "); got != want {
		t.Errorf("%s (%v)", got, results[0].Err)
	}
	if n := len(s.sentBatches()); n != 2 {
		t.Errorf("%d batches, want 2 of five messages", n)
	}
}

func TestTheQueuesOwnLimitRejectsAndIsReadAgainBeforehand(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.create("orders", 2000)
	sink := newSink(t, s.http.URL, Config{Queue: "orders"})
	large := event("large", "key", strings.Repeat("x", 3000))
	r := sink.Deliver(t.Context(), []core.Lease{large})[0]
	if r.Outcome != core.Rejected || !strings.Contains(r.Err.Error(), "limit 2000") {
		t.Errorf("%v (%v)", r.Outcome, r.Err)
	}
	s.setLimit("orders", 4000)
	if r := sink.Deliver(t.Context(), []core.Lease{large})[0]; r.Outcome != core.Delivered {
		t.Errorf("after the limit was raised: %v (%v)", r.Outcome, r.Err)
	}
	asked := s.requests("GetQueueAttributes")
	for range 10 {
		sink.Deliver(t.Context(), several(3))
	}
	if n := s.requests("GetQueueAttributes"); n != asked {
		t.Errorf("the limit was read %d times more", n-asked)
	}
}

// Without the right to read the limit SQS decides.
func TestWithoutTheRightToReadTheLimitSQSDecides(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.create("orders", 2000)
	s.lenient = true
	s.onLookup(func(op string) reaction {
		if op == "GetQueueAttributes" {
			return reaction{status: 403, code: "AccessDeniedException"}
		}
		return reaction{}
	})
	leases := several(3)
	leases[1].Event.Payload = bytes.Repeat([]byte("x"), 3000)
	if got := outcomes(newSink(t, s.http.URL, Config{Queue: "orders"}).Deliver(t.Context(), leases)); got != "delivered, rejected, delivered" {
		t.Error(got)
	}
}

// SQS answers a repeat with another body under one deduplication id as if it had
// taken it.
func TestFirstTryAndRetryAreOneMessage(t *testing.T) {
	t.Parallel()
	s := newServer(t, "orders.fifo")
	sink := newSink(t, s.http.URL, Config{Queue: "orders.fifo"})
	l := event("id", "key", "{}")
	l.Event.Headers = map[string]string{"b": "2", "a": "1", "!": "3", "d": "4", "e": "5"}
	for attempt := range 5 {
		l.Attempt, l.Redelivered = attempt+1, attempt > 0
		if r := sink.Deliver(t.Context(), []core.Lease{l})[0]; r.Outcome != core.Delivered {
			t.Fatalf("%v (%v)", r.Outcome, r.Err)
		}
	}
	batches := s.sentBatches()
	for _, b := range batches[1:] {
		if !reflect.DeepEqual(b.Entries, batches[0].Entries) {
			t.Errorf("a retry differs:\n%+v\n%+v", b.Entries, batches[0].Entries)
		}
	}
	if n := len(s.messages(t, "orders.fifo")); n != 1 {
		t.Errorf("%d messages are there", n)
	}
}

func TestPayloadsThatAreNoTextAreMarkedOrRejected(t *testing.T) {
	t.Parallel()
	s := newServer(t, "orders")
	payloads := map[string]string{"binary": "\x00\xff", "control": "a\x0bb", "empty": "", "text": "é\t\r\n", "non-character": "\ufffe"}
	for id, payload := range payloads {
		l := event(id, id, payload)
		if r := newSink(t, s.http.URL, Config{Queue: "orders"}).Deliver(t.Context(), []core.Lease{l})[0]; r.Outcome != core.Delivered {
			t.Errorf("%s: %v (%v)", id, r.Outcome, r.Err)
		}
		want := core.Delivered
		if id != "text" && id != "empty" {
			want = core.Rejected
		}
		if r := newSink(t, s.http.URL, Config{Queue: "orders", Binary: BinaryReject}).Deliver(t.Context(), []core.Lease{l})[0]; r.Outcome != want {
			t.Errorf("%s with BinaryReject: %v (%v)", id, r.Outcome, r.Err)
		}
	}
	got := map[string]string{}
	for _, m := range s.messages(t, "orders") {
		got[m.ID] = string(m.Payload)
	}
	if !maps.Equal(got, payloads) {
		t.Errorf("%q, want %q", got, payloads)
	}
}

func TestOnlyFIFOQueuesWhereThatIsAskedFor(t *testing.T) {
	t.Parallel()
	s := newServer(t, "a", "b.fifo")
	leases := several(2)
	leases[0].Event.Tenant, leases[1].Event.Tenant = "a", "b.fifo"
	if got := outcomes(newSink(t, s.http.URL, Config{Queue: "{{ .Tenant }}", FIFO: true}).Deliver(t.Context(), leases)); got != "rejected, delivered" {
		t.Error(got)
	}
	if _, err := New(awsConfig(s.http.URL), Config{Queue: "a", FIFO: true}); err == nil {
		t.Error("a queue that is no FIFO queue is taken")
	}
}

// A queue that is deleted and created anew is found again.
func TestAQueueThatComesBackIsFound(t *testing.T) {
	t.Parallel()
	s := newServer(t, "orders")
	sink := newSink(t, s.http.URL, Config{Queue: "orders"})
	deliver := func(want core.Outcome) {
		t.Helper()
		if r := sink.Deliver(context.Background(), several(1))[0]; r.Outcome != want {
			t.Errorf("%v (%v), want %v", r.Outcome, r.Err, want)
		}
	}
	deliver(core.Delivered)
	s.mu.Lock()
	delete(s.queues, "orders")
	s.mu.Unlock()
	deliver(core.Unavailable)
	if err := sink.Check(t.Context()); err == nil {
		t.Error("Check found nothing")
	}
	s.create("orders", maxBatchBytes)
	deliver(core.Delivered)
	if err := sink.Check(t.Context()); err != nil {
		t.Error(err)
	}
}
