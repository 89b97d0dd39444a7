package sqs

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/relay"
	"github.com/gooutbox/outbox/sink/sinktest"
	"github.com/gooutbox/outbox/store/memory"
)

// A relay brings a log to a queue while SQS fails in every way: nothing is lost,
// and each key's events arrive in order once repeats are dropped.
func TestARelayLosesNothingThroughFaults(t *testing.T) {
	t.Parallel()
	for _, queue := range []string{"orders", "orders.fifo"} {
		t.Run(queue, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, queue)
			s.on(faulty1in3())
			store := memory.New(memory.Config{})
			want := map[string][]string{}
			const events, keys = 300, 17
			for i := range events {
				key, id := fmt.Sprintf("key %d", i%keys), fmt.Sprintf("id-%04d", i)
				want[key] = append(want[key], id)
				err := store.InTransaction(t.Context(), func(ctx context.Context) error {
					return store.Append(ctx, core.Event{ID: id, Type: "order.placed", AggregateID: key, Payload: []byte("{}")})
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			short := relay.Backoff{Initial: time.Millisecond, Max: 5 * time.Millisecond}
			r, err := relay.New(relay.Config{
				Log: store, Logger: slog.New(slog.DiscardHandler),
				Sinks:  map[string]core.Sink{"sqs": newSink(t, s.http.URL, Config{Queue: queue})},
				Routes: []relay.Route{{Name: "sqs", Sink: "sqs", Backoff: short, OutageBackoff: short, BatchEvents: 40}},
			})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- r.Run(ctx) }()
			for ctx.Err() == nil && len(distinct(s.messages(t, queue))) < events {
				select {
				case <-ctx.Done():
				case <-s.changed:
				}
			}
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			got := map[string][]string{}
			messages := s.messages(t, queue)
			for _, m := range distinct(messages) {
				got[m.Key] = append(got[m.Key], m.ID)
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("arrived %v\nwant %v", got, want)
			}
			if repeats := len(messages) - events; isFIFO(queue) && repeats != 0 {
				t.Errorf("%d repeats on a FIFO queue", repeats)
			}
		})
	}
}

func distinct(messages []sinktest.Message) []sinktest.Message {
	seen := map[string]bool{}
	var out []sinktest.Message
	for _, m := range messages {
		if !seen[m.ID] {
			seen[m.ID] = true
			out = append(out, m)
		}
	}
	return out
}

// faulty1in3 breaks each third batch or so, each time in another way.
func faulty1in3() func(*batch) reaction {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(7, 7)) //nolint:gosec // no secret
	return func(b *batch) reaction {
		mu.Lock()
		defer mu.Unlock()
		some := map[string]failure{}
		omit := map[string]bool{}
		for i := range b.Entries {
			switch random.IntN(4) {
			case 0:
				some[b.Entries[i].ID] = failure{code: "InternalError"}
			case 1:
				omit[b.Entries[i].ID] = true
			}
		}
		switch random.IntN(18) {
		case 0:
			return reaction{cut: true, refuse: some}
		case 1:
			return reaction{status: 500, code: "InternalError", stores: true, refuse: some}
		case 2:
			return reaction{status: 503, code: "ServiceUnavailable"}
		case 3, 4:
			return reaction{refuse: some}
		case 5:
			return reaction{omit: omit}
		case 6:
			return reaction{text: "<html>"}
		}
		return reaction{}
	}
}
