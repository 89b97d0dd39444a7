package sqs

import (
	"maps"
	"net/http"
	"sync"
	"testing"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/sink/sinktest"
)

// The suite on a server that breaks off where it is told to, and that fails the
// test for what AWS would refuse.
func TestConformanceWithFaults(t *testing.T) {
	for name, fifo := range map[string]bool{"Standard": false, "FIFO": true} {
		t.Run(name, func(t *testing.T) {
			sinktest.Run(t, sinktest.Harness{New: func(t testing.TB) sinktest.Destination { return scripted(t, fifo) }})
		})
	}
}

func scripted(t testing.TB, fifo bool) sinktest.Destination {
	t.Helper()
	queue := queueName(t, fifo)
	s := newServer(t)
	s.create(queue, 65536)
	var opened *Sink
	return sinktest.Destination{
		Open: func(t testing.TB) core.Sink {
			sink, err := New(awsConfig(s.http.URL), Config{Queue: "{{ with .Tenant }}{{ . }}{{ else }}" + queue + "{{ end }}"})
			if err != nil {
				t.Fatal(err)
			}
			opened = sink
			return sink
		},
		Received:  func(t testing.TB) []sinktest.Message { return s.messages(t, queue) },
		Unordered: !fifo,
		TooLarge:  70_000,
		Reject:    rejected(),
		Spoil:     append(rejected(), func(e *core.Event) { e.Tenant = "missing" }),
		Refuse: func(testing.TB) (func(*core.Event), func()) {
			s.on(func(b *batch) reaction {
				do := reaction{refuse: map[string]failure{}}
				for _, m := range b.Entries {
					if m.read(t).headers["ce_outboxtenant"] == queue { // set by spoil
						do.refuse[m.ID] = failure{code: "InternalError"}
					}
				}
				return do
			})
			return func(e *core.Event) { e.Tenant = queue }, func() { s.on(nil) }
		},
		Steps: []sinktest.Step{
			{Name: "look up the queue", Break: s.breakLookup("GetQueueUrl", queue, func() *Sink { return opened })},
			{Name: "read the queue's limit", Break: s.breakLookup("GetQueueAttributes", queue, func() *Sink { return opened })},
			{Name: "send a batch", Stores: true, Repeats: !fifo, Break: s.breakSend},
		},
		Cut: func(testing.TB) func() {
			s.on(func(*batch) reaction {
				return reaction{status: http.StatusServiceUnavailable, code: "ServiceUnavailable"}
			})
			return func() { s.on(nil) }
		},
		Freeze: func(testing.TB) func() {
			thawed := make(chan struct{})
			s.on(func(*batch) reaction { return reaction{wait: thawed} })
			return sync.OnceFunc(func() { s.on(nil); close(thawed) })
		},
	}
}

// rejected are ways to make an event that is rejected for good.
func rejected() []func(*core.Event) {
	return []func(*core.Event){
		func(e *core.Event) { e.Headers["ce_x"] = "1" },
		func(e *core.Event) { e.ID = "" },
		func(e *core.Event) { e.Tenant = "no queue!" },
		func(e *core.Event) { e.Payload = make([]byte, 2*maxBatchBytes) },
		func(e *core.Event) {
			e.Headers = maps.Clone(e.Headers)
			e.Headers["x"] = "\xff"
		},
	}
}

// breakSend lets one batch fail, a large one: the worst case is wanted.
func (s *server) breakSend(_ testing.TB, when sinktest.When) func() bool {
	var once sync.Once
	struck := false
	s.on(func(b *batch) (do reaction) {
		if len(b.Entries) < 5 {
			return do
		}
		once.Do(func() {
			struck = true
			switch when {
			case sinktest.Before:
				do = reaction{status: http.StatusServiceUnavailable, code: "ServiceUnavailable"}
			case sinktest.During:
				do = reaction{cut: true, refuse: map[string]failure{}}
				for i := range b.Entries {
					if i%2 == 1 {
						do.refuse[b.Entries[i].ID] = failure{code: "InternalError"}
					}
				}
			default:
				do = reaction{cut: true}
			}
		})
		return do
	})
	return func() bool {
		s.on(nil)
		once.Do(func() {})
		return struck
	}
}

// breakLookup lets one look-up of the queue fail, which the sink has forgotten
// before.
func (s *server) breakLookup(op, queue string, sink func() *Sink) func(testing.TB, sinktest.When) func() bool {
	return func(_ testing.TB, when sinktest.When) func() bool {
		var once sync.Once
		struck := false
		s.onLookup(func(asked string) (do reaction) {
			if asked == op {
				once.Do(func() {
					struck = true
					switch when {
					case sinktest.Before:
						do = reaction{status: http.StatusServiceUnavailable, code: "ServiceUnavailable"}
					case sinktest.During:
						do = reaction{status: http.StatusInternalServerError, code: "InternalError"}
					default:
						do = reaction{cut: true}
					}
				})
			}
			return do
		})
		sink().known.forget(queue)
		return func() bool {
			s.onLookup(nil)
			once.Do(func() {})
			return struck
		}
	}
}
