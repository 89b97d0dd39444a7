package mongo

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
)

// impatient waits for events for a short time only.
var impatient = Config{ReadWait: 300 * time.Millisecond}

func appendIDs(t testing.TB, s *Store, ids ...string) {
	t.Helper()
	for _, id := range ids {
		appendNow(t, s, order(id))
	}
}

func TestAStreamGivesWhatIsCommittedInCommitOrder(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), impatient)
	c := cursorOf(t, s, core.Start{Now: true})
	// The second transaction begins first and commits last.
	late := make(chan struct{})
	var writing sync.WaitGroup
	begun := make(chan struct{})
	writing.Go(func() {
		err := s.InTransaction(context.Background(), func(ctx context.Context) error {
			err := s.Append(ctx, order("late-1"), order("late-2"))
			close(begun)
			<-late
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
	<-begun
	appendIDs(t, s, "a", "b")
	wantIDs(t, readTo(t, c, "b"), "a", "b")
	aborted := errors.New("the change did not happen")
	err := s.InTransaction(t.Context(), func(ctx context.Context) error {
		if err := s.Append(ctx, order("phantom")); err != nil {
			return err
		}
		return aborted
	})
	if !errors.Is(err, aborted) {
		t.Fatal(err)
	}
	close(late)
	writing.Wait()
	appendIDs(t, s, "c")
	got := readTo(t, c, "c")
	wantIDs(t, got, "late-1", "late-2", "c")
	wantRising(t, got)
	if age := time.Since(got[0].CommittedAt); age < -time.Minute || age > time.Minute {
		t.Errorf("an event that was committed just now says %s", got[0].CommittedAt)
	}
}

func TestRunningNumbersGoOnInTheMiddleOfATransaction(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), impatient)
	c := cursorOf(t, s, core.Start{Now: true})
	want := numbered(0, 10)
	events := make([]core.Event, len(want))
	for i, id := range want {
		events[i] = order(id)
	}
	appendNow(t, s, events...)

	var got []core.Entry
	for range 3 {
		b, err := c.Read(t.Context(), core.ReadLimit{Events: 4})
		if err != nil {
			t.Fatal(err)
		}
		saveBatch(t, c, b)
		got = append(got, b.Entries...)
		c = nextTerm(t, c) // goes on with the last event's own token
	}
	wantIDs(t, got, want...)
	for i, e := range got {
		if at := e.Mark.Position(); at.Time != got[0].Mark.Position().Time || at.Ordinal != uint64(i) {
			t.Errorf("event %d of one transaction is at %+v, the first at %+v", i, at, got[0].Mark.Position())
		}
	}
}

func TestAnIdleStreamTellsHowFarItHasCome(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), impatient)
	c := cursorOf(t, s, core.Start{Now: true})
	appendIDs(t, s, "a")
	readTo(t, c, "a")
	before := storedCursor(t, s, "route")
	// Something happens elsewhere, and the cursor's place moves with it.
	insert(t, s.db.Collection("elsewhere"), bson.D{{Key: "n", Value: 1}})
	for {
		b, err := c.Read(t.Context(), core.ReadLimit{})
		if err != nil {
			t.Fatal(err)
		}
		if len(b.Entries) != 0 || b.Reached == nil {
			t.Fatalf("an idle stream gave %v and %v", b.Entries, b.Reached)
		}
		saveBatch(t, c, b)
		if b.Reached.Position().Compare(before.Position.position()) > 0 {
			break
		}
	}
	if after := storedCursor(t, s, "route"); slices.Equal(after.Token, before.Token) {
		t.Error("the saved token is still that of the last event")
	}
	c = nextTerm(t, c)
	appendIDs(t, s, "b")
	got := readTo(t, c, "b")
	wantIDs(t, got, "b")
	if c.reader.scanning != nil {
		t.Error("the token of an idle stream led to a scan")
	}
}

func TestAReadIsBounded(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]core.Start{"stream": {Now: true}, "scan": {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStore(t, servicetest.Database(t), impatient)
			c := cursorOf(t, s, start)
			const size = 10_000
			want := numbered(0, 40)
			fillLog(t, s, size, want...)
			var got []core.Entry
			for len(got) < len(want) {
				b, err := c.Read(t.Context(), core.ReadLimit{Events: 7, Bytes: 5 * (size + 1000)})
				if err != nil {
					t.Fatal(err)
				}
				saveBatch(t, c, b)
				bytes := 0
				for _, e := range b.Entries {
					bytes += e.Size
				}
				if len(b.Entries) > 5 || bytes > 5*(size+1000) {
					t.Fatalf("a read gave %d entries of %d bytes", len(b.Entries), bytes)
				}
				got = append(got, b.Entries...)
			}
			wantIDs(t, got, want...)
			// A single entry always fits.
			fillLog(t, s, 3*size, "big-1", "big-2")
			for _, id := range []string{"big-1", "big-2"} {
				for {
					b, err := c.Read(t.Context(), core.ReadLimit{Bytes: 1})
					if err != nil {
						t.Fatal(err)
					}
					saveBatch(t, c, b)
					if len(b.Entries) > 0 {
						wantIDs(t, b.Entries, id)
						break
					}
				}
			}
		})
	}
}

func TestTheCollectionMayBeDroppedAndRenamed(t *testing.T) {
	t.Parallel()
	rename := func(t *testing.T, s *Store, from, to string) {
		t.Helper()
		err := s.client.Database("admin").RunCommand(t.Context(), bson.D{
			{Key: "renameCollection", Value: s.db.Name() + "." + from}, {Key: "to", Value: s.db.Name() + "." + to}, {Key: "dropTarget", Value: true},
		}).Err()
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, replace := range map[string]func(t *testing.T, s *Store) (appears []string){
		"dropped": func(t *testing.T, s *Store) []string {
			if err := s.log.Drop(t.Context()); err != nil {
				t.Fatal(err)
			}
			return nil
		},
		"dropped with its database": func(t *testing.T, s *Store) []string {
			kept, err := s.cursors.FindOne(t.Context(), bson.D{}).Raw()
			if err != nil {
				t.Fatal(err)
			}
			if err := s.db.Drop(t.Context()); err != nil {
				t.Fatal(err)
			}
			insert(t, s.cursors, kept)
			return nil
		},
		"renamed away": func(t *testing.T, s *Store) []string {
			rename(t, s, "outbox", "old")
			return nil
		},
		"replaced": func(t *testing.T, s *Store) []string {
			fillLog(t, storeOn(t, s, "other"), 10, "x", "y")
			rename(t, s, "other", "outbox")
			return []string{"x", "y"}
		},
		"renamed away and another renamed into its place": func(t *testing.T, s *Store) []string {
			fillLog(t, storeOn(t, s, "other"), 10, "x", "y")
			rename(t, s, "outbox", "old")
			rename(t, s, "other", "outbox")
			return []string{"x", "y"}
		},
	} {
		for _, when := range []string{"while it is read", "between two terms"} {
			t.Run(name+" "+when, func(t *testing.T) {
				t.Parallel()
				s := newStore(t, servicetest.Database(t), impatient)
				c := cursorOf(t, s, core.Start{Now: true})
				appendIDs(t, s, "a", "b")
				readTo(t, c, "b")
				appendIDs(t, s, "c") // committed and not read
				if when == "between two terms" {
					c.reader.close(t.Context())
				}
				want := append([]string{"c"}, replace(t, s)...)
				if when == "between two terms" {
					c = nextTerm(t, c)
				}
				if err := s.EnsureIndexes(t.Context()); err != nil {
					t.Fatal(err)
				}
				appendIDs(t, s, "d")
				want = append(want, "d")
				got, _ := readOn(t, c, core.ReadLimit{}, func(got []core.Entry) bool { return holds(got, "d") })
				if have := firsts(idsIn(got)); !slices.Equal(have, want) {
					t.Fatalf("read %v, want %v", have, want)
				}
				wantRising(t, got)
				// What was saved is good for a next term.
				catchUp(t, c)
				c = nextTerm(t, c)
				appendIDs(t, s, "e")
				if got := readTo(t, c, "e"); !slices.Equal(firsts(idsIn(got)), []string{"e"}) {
					t.Errorf("the next term read %v", idsIn(got))
				}
			})
		}
	}
}

// storeOn is a store on another collection of the same database.
func storeOn(t testing.TB, s *Store, collection string) *Store {
	t.Helper()
	other, err := New(s.db, Config{Collection: collection, Logger: s.logger})
	if err != nil {
		t.Fatal(err)
	}
	return other
}

func TestAReadThatIsStoppedLosesNothing(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]core.Start{"stream": {Now: true}, "scan": {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStore(t, servicetest.Database(t), Config{})
			c := cursorOf(t, s, start)
			want := numbered(0, 500)
			fillLog(t, s, 100, want...)
			var got []string
			for i := 0; len(firsts(got)) < len(want); i++ {
				// Contexts that end at once, a little later, and never.
				ctx, cancel := context.WithCancel(t.Context())
				if i%3 < 2 {
					time.AfterFunc(time.Duration(i%3*i)*100*time.Microsecond, cancel)
				}
				b, err := c.Read(ctx, core.ReadLimit{Events: 10})
				cancel()
				if err != nil && !errors.Is(err, context.Canceled) {
					t.Fatal(err)
				}
				got = append(got, idsIn(b.Entries)...)
			}
			if !slices.Equal(got, want) {
				t.Fatalf("read %d events, want %d: %v", len(got), len(want), got)
			}
		})
	}
}

func TestReleaseStopsARead(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), Config{})
	c := cursorOf(t, s, core.Start{Now: true})
	ended := make(chan error)
	go func() {
		for {
			if _, err := c.Read(context.Background(), core.ReadLimit{}); err != nil {
				ended <- err
				return
			}
		}
	}()
	if err := c.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if !errors.Is(err, core.ErrFenced) {
			t.Errorf("the read ended with %v", err)
		}
	case <-time.After(3 * time.Second):
		t.Error("the read goes on")
	}
}

// locked is a codec whose key can't be had for a while.
type locked struct {
	reverse
	mu     sync.Mutex
	closed bool
}

func (l *locked) Open(ctx context.Context, sealed, additional []byte, keyID string) ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, errors.New("the key server does not answer")
	}
	return l.reverse.Open(ctx, sealed, additional, keyID)
}

func TestAnEventThatCannotBeOpenedNowIsReadLater(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]core.Start{"stream": {Now: true}, "scan": {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			codec := &locked{}
			s := newStore(t, servicetest.Database(t), Config{Codec: codec, ReadWait: impatient.ReadWait})
			c := cursorOf(t, s, start)
			appendIDs(t, s, "a", "b")
			codec.mu.Lock()
			codec.closed = true
			codec.mu.Unlock()
			for range 3 {
				b, err := c.Read(t.Context(), core.ReadLimit{})
				if err == nil {
					t.Fatalf("read %v without a key", idsIn(b.Entries))
				}
			}
			codec.mu.Lock()
			codec.closed = false
			codec.mu.Unlock()
			wantIDs(t, readTo(t, c, "b"), "a", "b")
		})
	}
}

func TestADocumentThatIsNoEventIsSetAside(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]core.Start{"stream": {Now: true}, "scan": {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStore(t, servicetest.Database(t), impatient)
			c := cursorOf(t, s, start)
			appendIDs(t, s, "a")
			bad := bson.D{{Key: "_id", Value: int64(7)}, {Key: "seq", Value: bson.Timestamp{}}, {Key: "event_type", Value: 1.5}}
			insert(t, s.log, bad)
			appendIDs(t, s, "b")
			got := readTo(t, c, "b")
			wantIDs(t, got, "a", "7", "b")
			if !isDecodeError(got[1].Err) {
				t.Errorf("the error is %v", got[1].Err)
			}
			m := got[1].Mark.(*mark)
			if n, ok := m.id.Int64OK(); !ok || n != 7 {
				t.Errorf("the mark's id is %v", m.id)
			}
			if m.raw.Lookup("event_type").Type != bson.TypeDouble {
				t.Errorf("the mark keeps %v", m.raw)
			}
			if got[0].Err != nil || got[0].Mark.(*mark).raw != nil {
				t.Errorf("a sound event has the error %v and keeps %v", got[0].Err, got[0].Mark.(*mark).raw)
			}
		})
	}
}

func TestMarksKeepNoReplyInMemory(t *testing.T) {
	t.Parallel()
	s := newStore(t, servicetest.Database(t), impatient)
	c := cursorOf(t, s, core.Start{Now: true})
	fillLog(t, s, 1<<20, numbered(0, 4)...)
	got := readTo(t, c, numbered(3, 4)[0])
	for _, e := range got {
		m := e.Mark.(*mark)
		for what, b := range map[string][]byte{"id": m.id.Value, "token": m.token} {
			// A slice of a reply could be extended into it.
			if cap(b) != len(b) {
				t.Errorf("the %s of %s is part of something larger", what, e.Event.ID)
			}
		}
	}
}

func TestQueuedEventsAreToldFromOthers(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]core.Start{"stream": {Now: true}, "scan": {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStore(t, servicetest.Database(t), impatient)
			c := cursorOf(t, s, start)
			appendIDs(t, s, "a", "b")
			c.addJob(marshal(t, bson.D{{Key: "_id", Value: bson.D{{Key: "event", Value: "b"}}}}))
			got := readTo(t, c, "b")
			if got[0].Queued || !got[1].Queued {
				t.Errorf("queued: %v and %v", got[0].Queued, got[1].Queued)
			}
		})
	}
}
