package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/config"
	mongostore "github.com/gooutbox/outbox/store/mongo"
)

const (
	// leastMongo is the first major version with snapshot reads outside of
	// transactions, which the scan of a log needs.
	leastMongo = 5
	// clockWarning is from which difference on clocks are worth a word: times
	// in events and logs then mislead, although leases don't depend on them.
	clockWarning = 2 * time.Second
	// windowWarning is the shortest oplog window that covers an outage over
	// night.
	windowWarning = 24 * time.Hour
)

// check looks for everything that a relay needs of MongoDB.
func (s *mongoStore) check(ctx context.Context, file *config.File, found *findings) {
	hello, ok := s.checkConnection(ctx, found)
	if !ok {
		return
	}
	s.checkVersion(ctx, found)
	set := hello.SetName != "" || hello.Msg == "isdbgrid"
	s.checkTopology(hello, set, len(file.Routes), found)
	s.checkClock(ctx, found)
	if s.checkCollection(ctx, found) {
		s.checkLayout(ctx, found)
		s.checkRights(ctx, set, file, found)
	}
	if hello.SetName != "" && !s.options.Polling {
		s.checkOplog(ctx, time.Duration(file.Relay.Retention), found)
	}
}

type helloAnswer struct {
	SetName   string    `bson:"setName"`
	Msg       string    `bson:"msg"`
	LocalTime time.Time `bson:"localTime"`
}

func (s *mongoStore) admin() *mongo.Database { return s.client.Database("admin") }

func (s *mongoStore) checkConnection(ctx context.Context, found *findings) (helloAnswer, bool) {
	var hello helloAnswer
	err := s.admin().RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&hello)
	if err == nil {
		found.ok("MongoDB", "%s answers", s.options.URI)
		return hello, true
	}
	advice := "check store.mongodb.uri, that mongod runs, and that nothing between blocks it"
	if ce, ok := errors.AsType[mongo.CommandError](err); ok && (ce.Code == 18 || ce.Code == 13) {
		advice = "check user, password and authSource in store.mongodb.uri"
	}
	if hint := s.hint(err); hint != "" {
		advice = hint
	}
	found.fail("MongoDB", fmt.Sprintf("%s doesn't answer: %s", s.options.URI, because(ctx, err)), advice)
	return hello, false
}

func (s *mongoStore) checkVersion(ctx context.Context, found *findings) {
	var info struct {
		Version string `bson:"version"`
		Parts   []int  `bson:"versionArray"`
	}
	if err := s.admin().RunCommand(ctx, bson.D{{Key: "buildInfo", Value: 1}}).Decode(&info); err != nil {
		found.warn("MongoDB version", "the server doesn't tell: "+because(ctx, err), fmt.Sprintf("make sure that it is %d.0 or newer", leastMongo))
		return
	}
	if len(info.Parts) == 0 || info.Parts[0] < leastMongo {
		found.fail("MongoDB version", info.Version, fmt.Sprintf("upgrade to %d.0 or newer: older ones can't read a snapshot outside a transaction", leastMongo))
		return
	}
	found.ok("MongoDB version", "%s", info.Version)
}

func (s *mongoStore) checkTopology(hello helloAnswer, set bool, routes int, found *findings) {
	const check = "replica set"
	switch {
	case hello.SetName != "":
		found.ok(check, "%s", hello.SetName)
	case set:
		found.ok(check, "sharded cluster")
	case routes > 1:
		found.fail(check, fmt.Sprintf("standalone: it is polled, for one route only, and there are %d", routes),
			"start mongod with --replSet; one node is enough")
	default:
		found.warn(check, "standalone: no transactions and no change streams; the relay polls, and order and atomicity hold for single inserts only",
			"start mongod with --replSet; one node is enough")
	}
	if set && s.options.Polling && routes > 1 {
		found.fail("polling", fmt.Sprintf("polling serves one route, and there are %d", routes), "set store.mongodb.polling to false, or keep one route")
	}
}

func (s *mongoStore) checkClock(ctx context.Context, found *findings) {
	const check = "clock"
	var hello helloAnswer
	before := time.Now()
	if err := s.admin().RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&hello); err != nil {
		found.warn(check, "the server doesn't tell its time: "+because(ctx, err), "")
		return
	}
	trip := time.Since(before)
	difference := hello.LocalTime.Sub(before.Add(trip / 2))
	text := fmt.Sprintf("the server's is %s apart from this machine's (measured to %s)",
		difference.Abs().Round(time.Millisecond), (trip/2 + time.Millisecond).Round(time.Millisecond))
	if difference.Abs() > clockWarning+trip {
		found.warn(check, text, "let both follow a time server: leases don't depend on it, but times in events and logs mislead")
		return
	}
	found.ok(check, "%s", text)
}

// checkOplog compares how long the server keeps changes with how long a relay
// may be away.
func (s *mongoStore) checkOplog(ctx context.Context, retention time.Duration, found *findings) {
	const check = "oplog window"
	window, full, err := s.oplogWindow(ctx)
	if err != nil {
		found.warn(check, "can't be read: "+because(ctx, err), "grant read on the database local, or look at rs.printReplicationInfo() yourself")
		return
	}
	text := fmt.Sprintf("%.1f hours", window.Hours())
	if !full {
		found.ok(check, "%s, and not full yet", text)
		return
	}
	if window >= windowWarning {
		found.ok(check, "%s; after a longer outage the relay scans the log again and repeats some events", text)
		return
	}
	advice := "enlarge it (replSetResizeOplog): after a longer outage the relay scans the log again, which repeats some events"
	if retention > 0 && retention < window {
		advice += "; relay.retention is shorter still"
	}
	found.warn(check, text, advice)
}

// oplogWindow is the time between the first and the last entry; full tells
// whether old ones are being removed.
func (s *mongoStore) oplogWindow(ctx context.Context) (window time.Duration, full bool, err error) {
	oplog := s.client.Database("local").Collection("oplog.rs")
	var ends [2]time.Time
	for i, order := range []int{1, -1} {
		var entry struct {
			TS bson.Timestamp `bson:"ts"`
		}
		err := oplog.FindOne(ctx, bson.D{}, options.FindOne().SetSort(bson.D{{Key: "$natural", Value: order}}).
			SetProjection(bson.D{{Key: "ts", Value: 1}})).Decode(&entry)
		if err != nil {
			return 0, false, err
		}
		ends[i] = time.Unix(int64(entry.TS.T), 0)
	}
	full = true
	var stats struct {
		Size    float64 `bson:"size"`
		MaxSize float64 `bson:"maxSize"`
	}
	if s.client.Database("local").RunCommand(ctx, bson.D{{Key: "collStats", Value: "oplog.rs"}}).Decode(&stats) == nil {
		full = stats.Size >= 0.9*stats.MaxSize
	}
	return ends[1].Sub(ends[0]), full, nil
}

// because is the reason of an error, with what the check's time limit says, if
// that is what ended it.
func because(ctx context.Context, err error) string {
	if ctx.Err() != nil {
		return context.Cause(ctx).Error() + ": " + reasonOf(err)
	}
	return reasonOf(err)
}

// checkCollection tells whether the log's collection can be a log at all. Where
// it can't, other checks would only say the same in other words.
func (s *mongoStore) checkCollection(ctx context.Context, found *findings) bool {
	const check = "log collection"
	err := s.CheckLog(ctx)
	switch {
	case errors.Is(err, mongostore.ErrUnfitLog):
		found.fail(check, err.Error(), "make "+s.options.Collection+" an ordinary collection, or change store.mongodb.collection")
		return false
	case err != nil:
		found.warn(check, because(ctx, err), "")
	default:
		found.ok(check, "%s.%s is an ordinary collection, or not made yet", s.options.Database, s.options.Collection)
	}
	return true
}

// checkLayout tells whether `outbox indexes` was run, by this version or an
// older one.
func (s *mongoStore) checkLayout(ctx context.Context, found *findings) {
	const check = "collections and indexes"
	missing, err := s.Missing(ctx)
	switch {
	case errors.Is(err, core.ErrNewerLayout):
		found.fail(check, reasonOf(err), "")
	case err != nil:
		found.warn(check, because(ctx, err), "")
	case len(missing) > 0:
		found.warn(check, "missing: "+strings.Join(missing, ", "), "run outbox indexes")
	default:
		found.ok(check, "all there, layout known")
	}
}
