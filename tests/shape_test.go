package tests

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/gooutbox/outbox/internal/trial"
	mongostore "github.com/gooutbox/outbox/store/mongo"
)

// TestFieldsCanHaveOtherNames relays a collection that calls everything
// otherwise.
func TestFieldsCanHaveOtherNames(t *testing.T) {
	t.Parallel()
	fields := mongostore.Fields{
		Seq: "n", Aggregate: "entity", AggregateID: "entityId", Type: "name", Payload: "body",
		Headers: "meta", OccurredAt: "createdAt", PublishedAt: "sentAt",
	}
	s := newStage(t, servers{}, mongostore.Config{Collection: "messages", Fields: fields})
	s.config.Store = []string{
		"collection: messages",
		"fields: {seq: n, aggregate: entity, aggregate_id: entityId, event_type: name, payload: body, " +
			"headers: meta, occurred_at: createdAt, published_at: sentAt}",
	}
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	_, err := s.db.Collection("messages").InsertOne(t.Context(), bson.D{
		{Key: "_id", Value: "m-1"},
		{Key: "entity", Value: "order"},
		{Key: "entityId", Value: "42"},
		{Key: "name", Value: "order.placed"},
		{Key: "body", Value: `{"total":99}`},
		{Key: "meta", Value: bson.D{{Key: "x-origin", Value: "shop"}}},
		{Key: "createdAt", Value: at},
	})
	require.NoError(t, err)
	relay := s.hold()
	s.awaitIDs("m-1")
	s.append("m-2")
	s.awaitIDs("m-2")
	s.stop(relay)
	s.requireOnly("m-1", "m-2")
	r := s.record("m-1")
	require.Equal(t, "42", r.Key)
	require.JSONEq(t, `{"total":99}`, string(r.Value))
	require.Equal(t, "order.placed", r.Headers["ce_type"])
	require.Equal(t, "2026-03-04T05:06:07Z", r.Headers["ce_time"])
	require.Equal(t, "shop", r.Headers["x-origin"])
}

// record is the first one with this id.
func (s *stage) record(id string) trial.Record {
	s.t.Helper()
	for _, r := range s.collector.Records() {
		if r.ID == id {
			return r
		}
	}
	require.Fail(s.t, "no such record", id)
	return trial.Record{}
}

// TestADocumentThatIsNoEventIsSetAsideOnce lets a broken document stand between
// good ones.
func TestADocumentThatIsNoEventIsSetAsideOnce(t *testing.T) {
	t.Parallel()
	s := newStage(t, servers{}, mongostore.Config{})
	broken := bson.D{{Key: "_id", Value: "broken"}, {Key: "aggregate_id", Value: "42"}, {Key: "payload", Value: "x"}}
	s.append("before")
	_, err := s.db.Collection("outbox").InsertOne(t.Context(), broken)
	require.NoError(t, err)
	s.append("after")
	for range 3 { // a broken document must not come back with the next relay
		relay := s.hold()
		s.awaitIDs("before", "after")
		eventually(t, 10*time.Second, "the failed job", func() bool { return len(s.jobs()) > 0 })
		s.stop(relay)
	}
	s.requireOnly("before", "after")
	jobs := s.jobs()
	require.Len(t, jobs, 1)
	require.Equal(t, "failed", jobs[0].State)
	require.Equal(t, "undecodable", jobs[0].Failure.Code)
	require.NotEmpty(t, jobs[0].Failure.Reason)
	require.Equal(t, "broken", jobs[0].ID.Event)
	var kept bson.D
	require.NoError(t, bson.Unmarshal(jobs[0].Document, &kept))
	require.Equal(t, broken, kept)
}

// job is a document of the queue, as docs/layout.md describes it.
type job struct {
	ID struct {
		Event string `bson:"event"`
	} `bson:"_id"`
	State   string `bson:"state"`
	Failure struct {
		Code   string `bson:"code"`
		Reason string `bson:"reason"`
	} `bson:"failure"`
	Document bson.Raw `bson:"document"`
}

func (s *stage) jobs() []job {
	s.t.Helper()
	cursor, err := s.db.Collection("outbox_jobs").Find(s.t.Context(), bson.D{})
	require.NoError(s.t, err)
	var jobs []job
	require.NoError(s.t, cursor.All(s.t.Context(), &jobs))
	return jobs
}

// TestTheAdminListenerTellsHowThingsStand reads metrics and health of a relay.
func TestTheAdminListenerTellsHowThingsStand(t *testing.T) {
	t.Parallel()
	s := newStage(t, servers{}, mongostore.Config{})
	address := s.listenAdmin()
	relay := s.hold()
	s.append("a", "b", "c")
	s.awaitIDs("a", "b", "c")
	status, health := get(t, address, "/healthz")
	require.Equal(t, http.StatusOK, status, health)
	eventually(t, 10*time.Second, "readiness", func() bool {
		status, _ := get(t, address, "/readyz")
		return status == http.StatusOK
	})
	_, ready := get(t, address, "/readyz")
	var verdict struct {
		Ready   bool     `json:"ready"`
		Reasons []string `json:"reasons"`
	}
	require.NoError(t, json.Unmarshal([]byte(ready), &verdict))
	require.True(t, verdict.Ready)
	_, metrics := get(t, address, "/metrics")
	require.Equal(t, 3, metric(metrics, "outbox_relay_delivered_total"), metrics)
	s.stop(relay)
	_, err := net.DialTimeout("tcp", address, time.Second)
	require.Error(t, err, "the listener outlived the relay")
}

// listenAdmin configures an admin listener on a free port and returns its
// address.
func (s *stage) listenAdmin() string {
	s.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(s.t, err)
	address := listener.Addr().String()
	require.NoError(s.t, listener.Close())
	s.config.Admin = []string{fmt.Sprintf("listen: %q", address)}
	return address
}

func get(t *testing.T, address, path string) (int, string) {
	t.Helper()
	client := http.Client{Timeout: 10 * time.Second}
	response, err := client.Get("http://" + address + path)
	require.NoError(t, err)
	defer response.Body.Close() //nolint:errcheck // read only
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(body)
}

// metric is the sum of all series with this name, -1 if there is none.
func metric(page, name string) int {
	sum, found := 0.0, false
	for line := range strings.Lines(page) {
		if !strings.HasPrefix(line, name+"{") && !strings.HasPrefix(line, name+" ") {
			continue
		}
		var value float64
		if _, err := fmt.Sscan(line[strings.LastIndexByte(line, ' ')+1:], &value); err == nil {
			sum, found = sum+value, true
		}
	}
	if !found {
		return -1
	}
	return int(sum)
}
