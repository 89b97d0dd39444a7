package relay

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/gooutbox/outbox/core"
)

// BenchmarkEngine measures what the relay itself costs an event: a log that
// has the events at hand, and a sink that takes them at once.
func BenchmarkEngine(b *testing.B) {
	for _, bc := range []struct {
		name string
		keys int
		caps core.Capabilities
	}{
		{"1000 keys, prefix per key", 1000, core.Capabilities{PrefixPerKey: true}},
		{"1000 keys", 1000, core.Capabilities{}},
		{"a key an event", 1 << 20, core.Capabilities{PrefixPerKey: true}},
		{"one key, prefix per key", 1, core.Capabilities{PrefixPerKey: true}},
	} {
		b.Run(bc.name, func(b *testing.B) {
			b.ReportAllocs()
			ctx, cancel := context.WithCancel(b.Context())
			log := newFastLog(b.N, bc.keys, cancel)
			r, err := New(Config{
				Log: log, Sinks: map[string]core.Sink{"s": nothing{bc.caps}}, Routes: []Route{{Name: "r", Sink: "s"}},
				Logger: slog.New(slog.DiscardHandler), Retention: -1,
			})
			if err != nil {
				b.Fatal(err)
			}
			b.ResetTimer()
			if err := r.Run(ctx); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
			if log.saved.Time != uint64(b.N) {
				b.Fatalf("%d of %d events saved", log.saved.Time, b.N)
			}
		})
	}
}

// nothing is a sink that takes everything at once.
type nothing struct{ caps core.Capabilities }

var allDelivered = func() []core.Result {
	rs := make([]core.Result, core.DefaultReadEvents)
	for i := range rs {
		rs[i].Outcome = core.Delivered
	}
	return rs
}()

func (n nothing) Capabilities() core.Capabilities { return n.caps }
func (nothing) Close(context.Context) error       { return nil }
func (nothing) Deliver(_ context.Context, ls []core.Lease) []core.Result {
	return allDelivered[:len(ls)]
}

// fastLog has n events, and calls done when the last is saved.
type fastLog struct {
	n, at   int
	entries []core.Entry // handed out again and again
	marks   []fastMark
	saved   core.Position
	done    func()
}

type fastMark struct{ at uint64 }

func (m *fastMark) Position() core.Position { return core.Position{Time: m.at} }

func newFastLog(n, keys int, done func()) *fastLog {
	l := &fastLog{n: n, done: done, entries: make([]core.Entry, max(keys, core.DefaultReadEvents)), marks: make([]fastMark, n)}
	payload := make([]byte, 500)
	for i := range l.entries {
		l.entries[i] = core.Entry{
			Event: core.Event{ID: fmt.Sprint(i), AggregateID: fmt.Sprint("key ", i%keys), Type: "t", Payload: payload},
			Size:  700,
		}
	}
	return l
}

func (l *fastLog) Source() string { return "/fast" }
func (l *fastLog) Acquire(context.Context, core.AcquireRequest) (core.Cursor, error) {
	return l, nil
}

func (l *fastLog) Clean(context.Context, core.CleanRequest) (core.CleanResult, error) {
	return core.CleanResult{}, nil
}
func (l *fastLog) Lag(context.Context, string) (core.Lag, error) { return core.Lag{}, nil }
func (l *fastLog) Term() core.Term                               { return core.Term{Fence: 1} }
func (l *fastLog) OpenJobs(context.Context) ([]core.OpenJob, error) {
	return nil, nil
}

func (l *fastLog) ClaimJobs(context.Context, []core.OpenJob, time.Duration) ([]*core.Claimed, error) {
	return nil, nil
}
func (l *fastLog) Expires() time.Time { return time.Now().Add(time.Minute) }

func (l *fastLog) Read(ctx context.Context, limit core.ReadLimit) (core.Batch, error) {
	from := l.at % len(l.entries)
	n := min(limit.Events, l.n-l.at, len(l.entries)-from)
	if n == 0 {
		<-ctx.Done()
		return core.Batch{}, ctx.Err()
	}
	batch := core.Batch{Entries: l.entries[from : from+n]}
	for i := range batch.Entries {
		m := &l.marks[l.at]
		l.at++
		m.at = uint64(l.at)
		batch.Entries[i].Mark = m
	}
	return batch, nil
}

func (l *fastLog) Save(_ context.Context, ms []core.Mark) error {
	l.saved = ms[len(ms)-1].Position()
	if l.saved.Time == uint64(l.n) {
		l.done()
	}
	return nil
}

func (l *fastLog) Renew(context.Context) error               { return nil }
func (l *fastLog) Suspect(context.Context, core.Mark) error  { return nil }
func (l *fastLog) Park(context.Context, []core.Parked) error { return nil }
func (l *fastLog) Release(context.Context) error             { return nil }
