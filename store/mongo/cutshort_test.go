package mongo

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
)

func TestAScanThatIsCutShortLosesNothing(t *testing.T) {
	t.Parallel()
	for _, cut := range []int{1, 7, 20, 21, 59, 60} {
		t.Run(fmt.Sprint("after ", cut), func(t *testing.T) {
			t.Parallel()
			s := newStore(t, servicetest.Database(t), Config{ReadWait: impatient.ReadWait, Margin: time.Hour})
			native, foreign := numbered(0, 40), numbered(40, 60)
			fillLog(t, s, 10, native...)
			for i, id := range foreign {
				insert(t, s.log, foreignDoc(id, time.Now().Add(time.Duration(i-1000)*time.Hour)))
			}
			late, commit := openTransaction(t, s, "late")
			c := cursorOf(t, s, core.Start{})
			var got []core.Entry
			for len(got) < cut {
				b, err := c.Read(t.Context(), core.ReadLimit{Events: min(5, cut-len(got))})
				if err != nil {
					t.Fatal(err)
				}
				saveBatch(t, c, core.Batch{Entries: b.Entries})
				got = append(got, b.Entries...)
			}
			commit()
			<-late
			c = nextTerm(t, c)
			appendIDs(t, s, "end")
			rest := catchUp(t, c)
			all := append(slices.Clone(got), rest...)
			if have, want := firsts(idsIn(all)), 62; len(have) != want {
				t.Errorf("read %d events, want %d: %v", len(have), want, have)
			}
			wantAllDocuments(t, s, all)
			wantRising(t, all)
		})
	}
}

func TestTermsThatEndAnywhereLoseNothing(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano()) //nolint:gosec // any number will do
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a test's choices
	// No transaction of this test stays open for seconds.
	s := newStore(t, servicetest.Database(t), Config{ReadWait: impatient.ReadWait, Margin: 10 * time.Second})
	w := startWriters(t, s, 8)
	w.awaits(200)
	c := cursorOf(t, s, core.Start{})
	var got []core.Entry
	for range 25 {
		// A term reads some, settles a part of it, and ends. Sometimes its place
		// in the stream is lost.
		for range random.IntN(4) {
			b, err := c.Read(t.Context(), core.ReadLimit{Events: 1 + random.IntN(60)})
			if err != nil {
				t.Fatal(err)
			}
			part := core.Batch{Entries: b.Entries[:random.IntN(len(b.Entries)+1)]}
			if len(part.Entries) == len(b.Entries) {
				part.Reached = b.Reached
			}
			saveBatch(t, c, part)
			got = append(got, part.Entries...)
			if len(part.Entries) < len(b.Entries) {
				break // what was not settled belongs to the next term
			}
		}
		c.reader.close(t.Context())
		if random.IntN(5) == 0 && storedCursor(t, s, "route").Token != nil {
			setCursor(t, s, "route", bson.D{{Key: "token", Value: bson.D{{Key: "_data", Value: "garbage"}}}})
		}
		c = cursorOf(t, s, core.Start{})
	}
	w.stop()
	appendIDs(t, s, "end")
	rest, _ := readOn(t, c, core.ReadLimit{}, func(got []core.Entry) bool { return holds(got, "end") })
	got = append(got, rest...)
	wantAll(t, s, got)
	wantWritersOrder(t, got)
}

// wantAllDocuments fails unless every document of the log is among got.
func wantAllDocuments(t *testing.T, s *Store, got []core.Entry) {
	t.Helper()
	have := map[string]bool{}
	for _, e := range got {
		have[idKey(e.Mark.(*mark).id)] = true
	}
	found, err := s.log.Find(t.Context(), bson.D{})
	if err != nil {
		t.Fatal(err)
	}
	for found.Next(t.Context()) {
		if id := idOf(found.Current); !have[idKey(id)] {
			t.Errorf("the document %v was not read", id)
		}
	}
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
}
