package trial

import (
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/gooutbox/outbox/core"
)

// JobRow is a stored job as far as its history matters. Times are the server's.
type JobRow struct {
	EventID, DedupKey, Token, Owner, Code          string
	State                                          core.JobState
	Attempts, MaxAttempts, Redeliveries            int
	LeaseUntil, ClaimedAt, AvailableAt, FinishedAt time.Time
}

// Change is one write of a job, in the server's order.
type Change struct {
	// Job is the document's id, and At when the server wrote it.
	Job string
	At  time.Time
	// Row is the job afterwards.
	Row JobRow
	// Gone: the document was removed.
	Gone bool
}

// History records every write of the jobs of a database by a change stream.
type History struct {
	jobs   *mongo.Collection
	stream *mongo.ChangeStream
	token  bson.Raw // of the last event

	mu      sync.Mutex
	changes []Change
	docs    map[string]map[string]any
}

// RecordJobs begins the history. Follow reads it.
func RecordJobs(ctx context.Context, jobs *mongo.Collection) (*History, error) {
	h := &History{jobs: jobs, docs: map[string]map[string]any{}}
	if err := h.open(ctx); err != nil {
		return nil, fmt.Errorf("recording the history of jobs: %w", err)
	}
	h.token = h.stream.ResumeToken()
	return h, nil
}

func (h *History) open(ctx context.Context) (err error) {
	opts := options.ChangeStream().SetMaxAwaitTime(200 * time.Millisecond)
	if h.token != nil {
		opts.SetStartAfter(h.token)
	}
	h.stream, err = h.jobs.Watch(ctx, mongo.Pipeline{}, opts)
	return err
}

// event is a change event.
type event struct {
	Operation string        `bson:"operationType"`
	Wall      time.Time     `bson:"wallTime"`
	Key       bson.RawValue `bson:"documentKey"`
	Document  bson.M        `bson:"fullDocument"`
	Update    struct {
		Fields  bson.M   `bson:"updatedFields"`
		Removed []string `bson:"removedFields"`
	} `bson:"updateDescription"`
}

// Follow reads until ctx ends, which is no error. It goes on where it was when
// the servers were away.
func (h *History) Follow(ctx context.Context) error {
	for {
		for h.stream != nil && h.stream.Next(ctx) {
			var e event
			if err := h.stream.Decode(&e); err != nil {
				return fmt.Errorf("reading the history of jobs: %w", err)
			}
			h.add(&e)
			h.token = h.stream.ResumeToken()
		}
		if h.stream != nil {
			_ = h.stream.Close(context.WithoutCancel(ctx)) // what was read is read
			h.stream = nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(100 * time.Millisecond):
		}
		_ = h.open(ctx) // a set that has no primary is asked again
	}
}

func (h *History) add(e *event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	id := e.Key.String()
	switch e.Operation {
	case "insert", "replace":
		h.docs[id] = e.Document
	case "update":
		doc := maps.Clone(h.docs[id])
		if doc == nil {
			doc = bson.M{}
		}
		if e.Update.Fields["failure"] != nil {
			delete(doc, "failure.code")
		}
		maps.Copy(doc, e.Update.Fields)
		for _, name := range e.Update.Removed {
			delete(doc, name)
		}
		h.docs[id] = doc
	case "delete":
		h.changes = append(h.changes, Change{Job: id, At: e.Wall, Gone: true})
		return
	default:
		return
	}
	if h.docs[id]["state"] == nil {
		return // a pause
	}
	h.changes = append(h.changes, Change{Job: id, At: e.Wall, Row: rowOf(h.docs[id])})
}

// Changes are those that were read so far.
func (h *History) Changes() []Change {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.changes[:len(h.changes):len(h.changes)]
}

// Open counts the jobs that are not in a final state, as far as was read.
func (h *History) Open() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, doc := range h.docs {
		if state, ok := doc["state"].(string); ok && !core.JobState(state).Final() {
			n++
		}
	}
	return n
}

func rowOf(doc map[string]any) JobRow {
	failure := map[string]any{}
	switch f := doc["failure"].(type) {
	case bson.M:
		failure = f
	case bson.D:
		for _, e := range f {
			failure[e.Key] = e.Value
		}
	}
	if code, ok := doc["failure.code"]; ok {
		failure["code"] = code
	}
	return JobRow{
		EventID: text(doc["event_id"]), DedupKey: text(doc["dedup_key"]), Token: text(doc["token"]), Owner: text(doc["owner"]),
		Code: text(failure["code"]), State: core.JobState(text(doc["state"])),
		Attempts: number(doc["attempts"]), MaxAttempts: number(doc["max_attempts"]), Redeliveries: number(doc["redeliveries"]),
		LeaseUntil: moment(doc["lease_until"]), ClaimedAt: moment(doc["claimed_at"]),
		AvailableAt: moment(doc["available_at"]), FinishedAt: moment(doc["finished_at"]),
	}
}

func text(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case bson.Binary:
		return hex.EncodeToString(v.Data)
	}
	return ""
}

func number(v any) int {
	switch v := v.(type) {
	case int32:
		return int(v)
	case int64:
		return int(v)
	case float64:
		return int(v)
	}
	return 0
}

func moment(v any) time.Time {
	switch v := v.(type) {
	case bson.DateTime:
		return v.Time().UTC()
	case time.Time:
		return v.UTC()
	}
	return time.Time{}
}
