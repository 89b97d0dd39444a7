package mongo

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/services"
	"github.com/gooutbox/outbox/internal/servicetest"
)

// watched is a store whose log lines and metrics a test reads, and whose
// commands alone a test can make fail.
type watched struct {
	*Store
	app     string
	mu      sync.Mutex
	lines   bytes.Buffer
	metrics *sdk.ManualReader
}

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lines.Write(p)
}

func newWatched(t *testing.T, url string, cfg Config) *watched {
	t.Helper()
	w := &watched{app: servicetest.Name(t), metrics: sdk.NewManualReader()}
	cfg.Logger = slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelWarn}))
	cfg.MeterProvider = sdk.NewMeterProvider(sdk.WithReader(w.metrics))
	cfg.ReadWait = impatient.ReadWait
	client := servicetest.Client(t, url, options.Client().SetAppName(w.app))
	w.Store = newStore(t, servicetest.DatabaseOf(t, client), cfg)
	return w
}

// failing makes commands of this store fail from now on; mode is that of
// configureFailPoint.
func (w *watched) failing(t *testing.T, mode any, code int, commands ...string) (off func()) {
	t.Helper()
	admin := w.client.Database("admin")
	set := func(mode any) error {
		return admin.RunCommand(context.Background(), bson.D{
			{Key: "configureFailPoint", Value: "failCommand"},
			{Key: "mode", Value: mode},
			{Key: "data", Value: bson.D{
				{Key: "failCommands", Value: commands}, {Key: "errorCode", Value: code}, {Key: "appName", Value: w.app},
			}},
		}).Err()
	}
	if err := set(mode); err != nil {
		t.Fatal(err)
	}
	off = func() {
		if err := set("off"); err != nil {
			t.Error(err)
		}
	}
	return off
}

// warnings are the lines about lost places.
func (w *watched) warnings() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Count(w.lines.String(), "the place in the change stream is lost")
}

// counted is the value of a counter.
func (w *watched) counted(t *testing.T, name string) int64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := w.metrics.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	var n int64
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name == name {
				for _, point := range m.Data.(metricdata.Sum[int64]).DataPoints {
					n += point.Value
				}
			}
		}
	}
	return n
}

func (w *watched) wantRecoveries(t *testing.T, n int) {
	t.Helper()
	if got := w.warnings(); got != n {
		t.Errorf("%d warnings, want %d", got, n)
	}
	if got := w.counted(t, "outbox.cursor.recovered"); got != int64(n) {
		t.Errorf("%d recoveries were counted, want %d", got, n)
	}
}

// TestRecovery loses the place in the change stream in every way that is known.
// A server has one fail point for commands: its server is its own, and the ways
// are tried one after the other.
func TestRecovery(t *testing.T) {
	t.Parallel()
	url := servicetest.StartMongod(t, services.MongodConfig{}).URL()

	t.Run("a lost place is made good by one scan", func(t *testing.T) {
		for name, lose := range map[string]func(t *testing.T, w *watched){
			"history lost when it is opened":   func(t *testing.T, w *watched) { w.failing(t, bson.D{{Key: "times", Value: 1}}, 286, "aggregate") },
			"history lost while it is read":    func(t *testing.T, w *watched) { w.failing(t, bson.D{{Key: "times", Value: 1}}, 286, "getMore") },
			"token not found while it is read": func(t *testing.T, w *watched) { w.failing(t, bson.D{{Key: "times", Value: 1}}, 280, "getMore") },
			"an error that is not known":       func(t *testing.T, w *watched) { w.failing(t, bson.D{{Key: "times", Value: 1}}, 50792, "aggregate") },
			"garbage": func(t *testing.T, w *watched) {
				setCursor(t, w.Store, "route", bson.D{{Key: "token", Value: bson.D{{Key: "_data", Value: "garbage"}}}})
			},
			"another form": func(t *testing.T, w *watched) {
				setCursor(t, w.Store, "route", bson.D{{Key: "token", Value: bson.D{{Key: "place", Value: 5}}}})
			},
		} {
			t.Run(name, func(t *testing.T) {
				w := newWatched(t, url, Config{})
				c := cursorOf(t, w.Store, core.Start{Now: true})
				appendIDs(t, w.Store, "a", "b", "c")
				readTo(t, c, "c")
				c.reader.close(t.Context())
				appendIDs(t, w.Store, "d", "e")
				lose(t, w)
				c = cursorOf(t, w.Store, core.Start{})
				got := readTo(t, c, "e")
				if have := firsts(idsIn(got)); !slices.Equal(have, []string{"a", "b", "c", "d", "e"}) {
					t.Errorf("read %v", have)
				}
				catchUp(t, c)
				appendIDs(t, w.Store, "f")
				wantIDs(t, readTo(t, c, "f"), "f")
				w.wantRecoveries(t, 1)
				// The new place is good: the next term needs no scan.
				c = nextTerm(t, c)
				appendIDs(t, w.Store, "g")
				wantIDs(t, readTo(t, c, "g"), "g")
				w.wantRecoveries(t, 1)
			})
		}
	})

	t.Run("a passing error is not a lost place", func(t *testing.T) {
		for _, command := range []string{"aggregate", "getMore"} {
			for _, code := range []int{6, 43, 50, 189, 262, 10107, 11602, 13436} {
				t.Run(fmt.Sprint(command, " ", code), func(t *testing.T) {
					w := newWatched(t, url, Config{})
					c := cursorOf(t, w.Store, core.Start{Now: true})
					appendIDs(t, w.Store, "a")
					readTo(t, c, "a")
					c = nextTerm(t, c)
					appendIDs(t, w.Store, "b")
					w.failing(t, bson.D{{Key: "times", Value: 3}}, code, command)
					got, _ := readOn(t, c, core.ReadLimit{}, func(got []core.Entry) bool { return holds(got, "b") })
					wantIDs(t, got, "b")
					w.wantRecoveries(t, 0)
				})
			}
		}
	})

	t.Run("missing rights are told and nothing is scanned", func(t *testing.T) {
		for _, code := range []int{13, 18} {
			w := newWatched(t, url, Config{})
			c := cursorOf(t, w.Store, core.Start{Now: true})
			off := w.failing(t, "alwaysOn", code, "aggregate")
			_, err := c.Read(t.Context(), core.ReadLimit{})
			if err == nil || !strings.Contains(err.Error(), "changeStream") {
				t.Errorf("code %d: the error is %v", code, err)
			}
			off()
			appendIDs(t, w.Store, "a")
			wantIDs(t, readTo(t, c, "a"), "a")
			w.wantRecoveries(t, 0)
		}
	})

	t.Run("a recovery that leads nowhere is an error", func(t *testing.T) {
		for _, failing := range []struct {
			command string
			code    int
		}{{"aggregate", 286}, {"getMore", 286}, {"aggregate", 50792}} {
			command := failing.command
			w := newWatched(t, url, Config{})
			c := cursorOf(t, w.Store, core.Start{Now: true})
			appendIDs(t, w.Store, "a")
			readTo(t, c, "a")
			c = nextTerm(t, c)
			off := w.failing(t, "alwaysOn", failing.code, command)
			began, repeats := time.Now(), 0
			var failures int
			for reads := range 100 {
				b, err := c.Read(t.Context(), core.ReadLimit{})
				if err != nil {
					failures++
				}
				repeats += len(b.Entries)
				if scans := w.warnings(); scans > failures+1 {
					t.Fatalf("%s: %d scans and only %d errors after %d reads", command, scans, failures, reads+1)
				}
			}
			// Pauses of at least a second lie between the scans, whatever the caller does.
			if most := 1 + int(time.Since(began)/time.Second); w.warnings() > most || repeats > most {
				t.Errorf("%s: %d scans gave %d repeats in %s", command, w.warnings(), repeats, time.Since(began))
			}
			if failures == 0 {
				t.Errorf("%s: no error after %d scans", command, w.warnings())
			}
			off()
			appendIDs(t, w.Store, "b")
			got, _ := readOn(t, c, core.ReadLimit{}, func(got []core.Entry) bool { return holds(got, "b") })
			if have := firsts(idsIn(got)); !slices.Contains(have, "b") {
				t.Errorf("read %v", have)
			}
		}
	})

	t.Run("an event too large for the stream is passed by a scan", func(t *testing.T) {
		w := newWatched(t, url, Config{})
		c := cursorOf(t, w.Store, core.Start{Now: true})
		appendIDs(t, w.Store, "a")
		readTo(t, c, "a")
		// A change event holds the id three times beside the document.
		id := strings.Repeat("x", 20_000)
		doc := foreignDoc(id, time.Now())
		doc[4].Value = bson.Binary{Data: make([]byte, 16<<20-25_000)}
		insert(t, w.log, doc)
		appendIDs(t, w.Store, "b")
		got := readTo(t, c, "b")
		// The foreign document comes after those with a seq.
		for len(firsts(idsIn(got))) < 3 {
			b, err := c.Read(t.Context(), core.ReadLimit{})
			if err != nil {
				t.Fatal(err)
			}
			saveBatch(t, c, b)
			got = append(got, b.Entries...)
		}
		if have := firsts(idsIn(got)); !slices.Equal(have, []string{"a", "b", id}) {
			t.Errorf("read %d events, want 3", len(have))
		}
		w.wantRecoveries(t, 1)
	})

	t.Run("a commit after the position is found behind it", func(t *testing.T) {
		w := newWatched(t, url, Config{})
		c := cursorOf(t, w.Store, core.Start{Now: true})
		late, commit := openTransaction(t, w.Store, "late")
		appendIDs(t, w.Store, "a")
		readTo(t, c, "a") // the position has passed the late event's seq
		c.reader.close(t.Context())
		commit()
		<-late
		w.failing(t, bson.D{{Key: "times", Value: 1}}, 286, "aggregate")
		c = cursorOf(t, w.Store, core.Start{})
		appendIDs(t, w.Store, "b")
		if have := firsts(idsIn(readTo(t, c, "b"))); !slices.Equal(have, []string{"late", "a", "b"}) {
			t.Errorf("read %v", have)
		}
	})

	t.Run("a snapshot that is gone is followed by another", func(t *testing.T) {
		for _, code := range []int{239, 246, 43} {
			t.Run(fmt.Sprint(code), func(t *testing.T) {
				w := newWatched(t, url, Config{})
				want := numbered(0, 60)
				late, commit := openTransaction(t, w.Store, "late")
				fillLog(t, w.Store, 10, want[:50]...)
				c := cursorOf(t, w.Store, core.Start{})
				b, err := c.Read(t.Context(), core.ReadLimit{Events: 20})
				if err != nil {
					t.Fatal(err)
				}
				wantIDs(t, b.Entries, want[:20]...)
				all := b.Entries
				commit()
				<-late
				fillLog(t, w.Store, 10, want[50:]...)
				w.failing(t, bson.D{{Key: "times", Value: 1}}, code, "getMore")
				rest, _ := readOn(t, c, core.ReadLimit{Events: 20}, func(got []core.Entry) bool { return holds(got, want[59]) })
				all = append(all, rest...)
				wantIDs(t, all, slices.Concat(want[:20], []string{"late"}, want[20:])...)
				wantRising(t, all)
				w.wantRecoveries(t, 0)
			})
		}
	})

	t.Run("a scan that can't be done is an error and goes on later", func(t *testing.T) {
		w := newWatched(t, url, Config{})
		want := numbered(0, 50)
		fillLog(t, w.Store, 10, want...)
		c := cursorOf(t, w.Store, core.Start{})
		b, err := c.Read(t.Context(), core.ReadLimit{Events: 20})
		if err != nil {
			t.Fatal(err)
		}
		all := b.Entries
		off := w.failing(t, "alwaysOn", 246, "find", "getMore")
		for range 3 {
			if b, err := c.Read(t.Context(), core.ReadLimit{Events: 20}); err == nil {
				t.Fatalf("read %v", idsIn(b.Entries))
			}
		}
		off()
		rest, _ := readOn(t, c, core.ReadLimit{Events: 20}, func(got []core.Entry) bool { return holds(got, want[49]) })
		wantIDs(t, append(all, rest...), want...)
	})
}

// openTransaction appends an event in a transaction that is committed later.
func openTransaction(t *testing.T, s *Store, id string) (done chan struct{}, commit func()) {
	t.Helper()
	done, appended, may := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		err := s.InTransaction(context.Background(), func(ctx context.Context) error {
			err := s.Append(ctx, order(id))
			close(appended)
			<-may
			return err
		})
		if err != nil {
			t.Errorf("committing late: %v", err)
		}
	}()
	<-appended
	return done, sync.OnceFunc(func() { close(may) })
}

func TestHistoryThatRolledOverIsMadeGood(t *testing.T) {
	t.Parallel()
	mongod := servicetest.StartMongod(t, services.MongodConfig{OplogSizeMB: 8, Args: []string{"--syncdelay", "1"}})
	w := newWatched(t, mongod.URL(), Config{})
	want := numbered(0, 300)
	c := cursorOf(t, w.Store, core.Start{Now: true})
	fillLog(t, w.Store, 100, want[:100]...)
	got := readTo(t, c, want[99])
	c.reader.close(t.Context())
	fillLog(t, w.Store, 100, want[100:200]...)
	rollOver(t, w.Store)
	fillLog(t, w.Store, 100, want[200:]...)
	c = cursorOf(t, w.Store, core.Start{})
	got = append(got, readTo(t, c, want[299])...)
	if have := firsts(idsIn(got)); !slices.Equal(have, want) {
		t.Errorf("read %d events in order, want %d", len(have), len(want))
	}
	w.wantRecoveries(t, 1)
}

// rollOver writes until the oplog no longer holds what it holds now.
func rollOver(t *testing.T, s *Store) {
	t.Helper()
	end, oplog := edges(t, s.client)
	junk := bson.D{{Key: "junk", Value: make([]byte, 1<<20)}}
	deadline := time.Now().Add(readTime)
	for {
		for range 10 {
			insert(t, s.db.Collection("junk"), junk)
		}
		oldest, _ := oplog.FindOne(t.Context(), bson.D{}, options.FindOne().SetSort(bson.D{{Key: "$natural", Value: 1}})).Raw()
		if ts, i, ok := oldest.Lookup("ts").TimestampOK(); ok && end.Before(bson.Timestamp{T: ts, I: i}) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the oplog does not roll over")
		}
	}
}

// edges are the newest place in the oplog, and the oplog.
func edges(t *testing.T, client *mongo.Client) (newest bson.Timestamp, oplog *mongo.Collection) {
	t.Helper()
	oplog = client.Database("local").Collection("oplog.rs")
	last, err := oplog.FindOne(t.Context(), bson.D{}, options.FindOne().SetSort(bson.D{{Key: "$natural", Value: -1}})).Raw()
	if err != nil {
		t.Fatal(err)
	}
	newest.T, newest.I = last.Lookup("ts").Timestamp()
	return newest, oplog
}

func TestASnapshotThatGrewTooOldIsFollowedByAnother(t *testing.T) {
	t.Parallel()
	mongod := servicetest.StartMongod(t, services.MongodConfig{Parameters: map[string]string{"minSnapshotHistoryWindowInSeconds": "1"}})
	w := newWatched(t, mongod.URL(), Config{})
	want := numbered(0, 400)
	fillLog(t, w.Store, 10, want[:300]...)
	late, commit := openTransaction(t, w.Store, "late")
	fillLog(t, w.Store, 10, want[300:]...)
	c := cursorOf(t, w.Store, core.Start{})
	var got []core.Entry
	for snapshots := map[bson.Timestamp]bool{}; !holds(got, want[399]); {
		b, err := c.Read(t.Context(), core.ReadLimit{Events: 50})
		if err != nil {
			t.Fatal(err)
		}
		saveBatch(t, c, b)
		got = append(got, b.Entries...)
		if c.reader.scanning == nil {
			break
		}
		snapshots[c.reader.scanning.snapshot] = true
		if len(snapshots) == 1 && len(got) >= 350 {
			// The late event commits behind what was read.
			commit()
			<-late
			outdate(t, w.Store, c.reader.scanning.snapshot)
		}
	}
	if have := idsIn(got); !slices.Equal(have, slices.Concat(want[:350], []string{"late"}, want[350:])) {
		t.Errorf("read %d events: %v", len(have), have)
	}
	w.wantRecoveries(t, 0)
}

// outdate waits until the server can no longer read at this time.
func outdate(t *testing.T, s *Store, at bson.Timestamp) {
	t.Helper()
	deadline := time.Now().Add(readTime)
	for {
		insert(t, s.db.Collection("elsewhere"), bson.D{})
		err := s.db.RunCommand(t.Context(), bson.D{
			{Key: "find", Value: s.log.Name()},
			{Key: "limit", Value: 1},
			{Key: "readConcern", Value: bson.D{{Key: "level", Value: "snapshot"}, {Key: "atClusterTime", Value: at}}},
		}).Err()
		if hasCode(err, codeSnapshotTooOld) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the snapshot does not grow old: %v", err)
		}
	}
}

func TestASteppingDownIsNoLostPlace(t *testing.T) {
	t.Parallel()
	mongod := servicetest.StartMongod(t, services.MongodConfig{Nodes: 3})
	w := newWatched(t, mongod.URL(), Config{})
	c := cursorOf(t, w.Store, core.Start{Now: true})
	var got []core.Entry
	want := numbered(0, 6)
	for i, id := range want {
		appendIDs(t, w.Store, id)
		more, _ := readOn(t, c, core.ReadLimit{}, func(got []core.Entry) bool { return holds(got, id) })
		got = append(got, more...)
		if i%2 == 0 {
			if err := mongod.StepDown(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if have := idsIn(got); !slices.Equal(have, want) {
		t.Errorf("read %v, want %v", have, want)
	}
	w.wantRecoveries(t, 0)
}
