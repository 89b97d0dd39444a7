package mongo

import (
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
)

// benchEvents are as many events of about 500 bytes as one round reads.
const benchEvents = 50_000

func benchLog(b *testing.B) (s *Store, token bson.Raw) {
	b.Helper()
	s = newStore(b, servicetest.Database(b), Config{})
	before, err := s.log.Watch(b.Context(), streamPipeline, options.ChangeStream().SetBatchSize(0))
	if err != nil {
		b.Fatal(err)
	}
	token = before.ResumeToken()
	_ = before.Close(b.Context())
	fillLog(b, s, 330, numbered(0, benchEvents)...)
	return s, token
}

func reportRate(b *testing.B) {
	b.Helper()
	b.ReportMetric(float64(benchEvents)*float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

// BenchmarkDriverAlone reads the stream and does nothing with it: the bound of
// what a reader can reach.
func BenchmarkDriverAlone(b *testing.B) {
	s, token := benchLog(b)
	for b.Loop() {
		stream, err := s.log.Watch(b.Context(), streamPipeline, options.ChangeStream().
			SetStartAfter(token).SetBatchSize(core.DefaultReadEvents).SetMaxAwaitTime(5*time.Second))
		if err != nil {
			b.Fatal(err)
		}
		for range benchEvents {
			if !stream.Next(b.Context()) {
				b.Fatal(stream.Err())
			}
		}
		_ = stream.Close(b.Context())
	}
	reportRate(b)
}

// BenchmarkStream reads events through a cursor that has a token.
func BenchmarkStream(b *testing.B) {
	s, token := benchLog(b)
	benchRead(b, s, cursorDoc{Name: "bench", Token: token})
}

// BenchmarkScan reads events through a new cursor.
func BenchmarkScan(b *testing.B) {
	s, _ := benchLog(b)
	benchRead(b, s, cursorDoc{Name: "bench", Scan: &scanState{First: true}})
}

func benchRead(b *testing.B, s *Store, doc cursorDoc) {
	b.Helper()
	b.ReportAllocs()
	for b.Loop() {
		r := newReader(s, readerConfig{doc: doc, margin: time.Minute, queued: notQueued, recovering: noJobs})
		for n := 0; n < benchEvents; {
			batch, err := r.read(b.Context(), core.ReadLimit{}.OrDefaults())
			if err != nil {
				b.Fatal(err)
			}
			n += len(batch.Entries)
		}
		r.close(b.Context())
	}
	reportRate(b)
}
