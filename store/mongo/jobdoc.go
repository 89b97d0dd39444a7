package mongo

import (
	"context"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/gooutbox/outbox/core"
)

// storedJob is the stored form of a job as it is first written: by Enqueue, or
// by a cursor that parks an event. Its names never follow Config.Fields.
type storedJob struct {
	// ID is a UUID, or a jobID for a parked event.
	ID any `bson:"_id"`
	// EventID is left out where it is the UUID in ID.
	EventID string `bson:"event_id,omitempty"`

	Aggregate        string         `bson:"aggregate,omitempty"`
	AggregateID      string         `bson:"aggregate_id,omitempty"`
	Type             string         `bson:"event_type,omitempty"`
	Payload          *storedPayload `bson:"payload,omitempty"`
	ContentType      string         `bson:"content_type,omitempty"`
	Version          int            `bson:"version,omitempty"`
	AggregateVersion int64          `bson:"aggregate_version,omitempty"`
	Headers          bson.D         `bson:"headers,omitempty"`
	Tenant           string         `bson:"tenant,omitempty"`
	OccurredAt       time.Time      `bson:"occurred_at,omitempty"`
	CorrelationID    string         `bson:"correlation_id,omitempty"`
	Codec            string         `bson:"codec,omitempty"`
	KeyID            string         `bson:"key_id,omitempty"`
	// Document is a stored document that is no event, as it is.
	Document bson.Raw `bson:"document,omitempty"`
	// Reference is the _id of an event that is too large to be copied. The
	// cleaner leaves it.
	Reference bson.RawValue `bson:"reference,omitempty"`

	Sink     string `bson:"sink"`
	Priority string `bson:"priority,omitempty"`
	// Rank is absent from a parked job, which only the holder of its cursor may
	// claim: Queue.Claim asks for a rank.
	Rank     *int32 `bson:"rank,omitempty"`
	DedupKey string `bson:"dedup_key,omitempty"`
	// Hash is that of the content, by the key that HashKey names if any.
	Hash    *bson.Binary `bson:"hash,omitempty"`
	HashKey string       `bson:"hash_key,omitempty"`

	State       core.JobState `bson:"state"`
	Attempts    int           `bson:"attempts"`
	MaxAttempts int           `bson:"max_attempts,omitempty"`
	Redelivered bool          `bson:"redelivered,omitempty"`
	NotBefore   time.Time     `bson:"not_before,omitempty"`
	AvailableAt time.Time     `bson:"available_at,omitempty"`
	// Seq orders jobs that are due at the same time.
	Seq bson.RawValue `bson:"seq,omitempty"`
	// EnqueuedAt is the server's time; without a dedup key it is about that, and
	// readers keep it within the second of Seq.
	EnqueuedAt time.Time `bson:"enqueued_at"`
	FinishedAt time.Time `bson:"finished_at,omitempty"`
	// Token is that of the last lease. A job that was enqueued under a dedup key
	// has that of the call.
	Token   *bson.Binary   `bson:"token,omitempty"`
	Failure *storedFailure `bson:"failure,omitempty"`

	Cursor   string          `bson:"cursor,omitempty"`
	Position *storedPosition `bson:"position,omitempty"`
	// Open: the job of a cursor is not final, or it failed and holds its key. It
	// stays while the job goes from state to state, so that who lists them by its
	// index misses none.
	Open bool `bson:"open,omitempty"`
	// Hold: the job of a cursor holds its key when it fails.
	Hold bool `bson:"hold,omitempty"`
	// Ordered: every event of its key that was committed before it was settled
	// when it was parked, and the time in Position is that of its commit.
	Ordered bool `bson:"ordered,omitempty"`
}

// storedPayload is a binary that is stored also where it is empty.
type storedPayload struct{ Data []byte }

// MarshalBSONValue is that of the binary.
func (p storedPayload) MarshalBSONValue() (typ byte, data []byte, err error) {
	t, data, err := bson.MarshalValue(bson.Binary{Data: p.Data})
	return byte(t), data, err
}

// UnmarshalBSONValue is the inverse of MarshalBSONValue.
func (p *storedPayload) UnmarshalBSONValue(typ byte, data []byte) error {
	_, content, ok := bytesOf(bson.RawValue{Type: bson.Type(typ), Value: data})
	if !ok {
		return errMalformed
	}
	p.Data = slices.Clone(content)
	return nil
}

// jobID is the _id of a job that came from a cursor. Its fields are in this
// order.
type jobID struct {
	Log    string        `bson:"log"`
	Cursor string        `bson:"cursor"`
	Event  bson.RawValue `bson:"event"`
}

type storedFailure struct {
	Code   string    `bson:"code"`
	Reason string    `bson:"reason"`
	At     time.Time `bson:"at"`
}

// jobFields are the names of an event's fields in a job.
var jobFields = func() Fields {
	f := defaultFields
	f.ID = "event_id"
	return f
}()

var jobColumns = jobFields.columns()

// readJob is a stored job as a program reads it.
type readJob struct {
	id     bson.RawValue
	event  core.Event
	err    error // why event can't be delivered
	sink   string
	cursor string
	state  core.JobState

	priority                            core.Priority
	attempts, maxAttempts, redeliveries int
	redelivered, redriven               bool

	enqueuedAt, availableAt, claimedAt time.Time
	notBefore                          time.Time
	leaseUntil, finishedAt, expireAt   time.Time
	seq                                bson.Timestamp
	token                              bson.RawValue
	dedupKey, owner, result            string
	failure                            storedFailure
	rank                               int
	reference                          bson.RawValue
	payloadBytes                       int
	// What orders it among others, as it is stored.
	rawSeq, positionTime, positionOrdinal bson.RawValue
	discarded, open                       bool
}

// decodeJob reads a stored job, as it was written by this package or in another
// language. Settings that can't be read have their defaults, so that no
// document stops a queue; what is wrong with the event is in err, marked by
// core.MarkRejected where no retry can cure it. Nothing points into raw.
func (s *Store) decodeJob(ctx context.Context, raw bson.Raw) readJob {
	j := readJob{rank: core.Normal.Rank()}
	d := decoder{raw: raw}
	var document bool
	els := walk(raw)
	for els.next() {
		name := string(els.name)
		if c, ok := jobColumns[name]; ok {
			d.field(c, els.name, els.value)
			continue
		}
		document = document || name == "document"
		j.field(name, els.value)
	}
	if els.err != nil {
		d.fail("_id", els.err.Error())
	}
	j.settleTimes()
	if d.hasPayload {
		j.payloadBytes = len(d.event.Payload)
	}
	if d.event.ID == "" {
		d.event.ID = jobName(j.id)
	}
	d.required("_id", d.event.ID)
	d.required(jobFields.Type, d.event.Type)
	switch {
	case document:
		d.fail("document", "is kept as it was read: it is no event")
	case !d.hasPayload && j.reference.IsZero():
		d.lacks(jobFields.Payload)
	}
	j.event = d.event
	j.err = d.err
	if j.err == nil && d.codec != "" {
		j.event, j.err = s.open(ctx, d.event, d.codec, d.keyID)
	}
	if isDecodeError(j.err) {
		j.err = core.MarkRejected(j.err)
	}
	return j
}

// field reads what is not the event's own.
func (j *readJob) field(name string, v bson.RawValue) {
	switch name {
	case "_id":
		j.id = copyOf(v)
	case "reference":
		j.reference = copyOf(v)
	case "token":
		j.token = copyOf(v)
	case "sink":
		j.sink, _ = textOf(v)
	case "cursor":
		j.cursor, _ = textOf(v)
	case "state":
		text, _ := textOf(v)
		j.state = core.JobState(text)
	case "owner":
		j.owner, _ = textOf(v)
	case "result":
		j.result, _ = textOf(v)
	case "dedup_key":
		j.dedupKey, _ = textOf(v)
	case "rank":
		j.rank = count32(v, core.Normal.Rank())
		j.priority = core.Priority(min(max(j.rank, core.High.Rank()), core.Low.Rank()) - 1) //nolint:gosec // -1 to 1
	case "attempts":
		j.attempts = count32(v, 0)
	case "max_attempts":
		j.maxAttempts = count32(v, 0)
	case "redeliveries":
		j.redeliveries = count32(v, 0)
	case "redelivered":
		j.redelivered, _ = v.BooleanOK()
	case "redriven":
		j.redriven, _ = v.BooleanOK()
	case "seq":
		j.rawSeq = copyOf(v)
		j.seq.T, j.seq.I, _ = v.TimestampOK()
	case "position":
		j.position(v)
	case "payload_bytes":
		j.payloadBytes = count32(v, 0)
	case "discarded":
		j.discarded, _ = v.BooleanOK()
	case "open":
		j.open, _ = v.BooleanOK()
	case "failure":
		j.failure = failureOf(v)
	case "not_before": // a text is not compared by the server, and is none
		if v.Type == bson.TypeDateTime {
			j.notBefore = v.Time()
		}
	default:
		j.time(name, v)
	}
}

func (j *readJob) position(v bson.RawValue) {
	els := walk(v.Value)
	for v.Type == bson.TypeEmbeddedDocument && els.next() {
		switch string(els.name) {
		case "time":
			j.positionTime = copyOf(els.value)
		case "ordinal":
			j.positionOrdinal = copyOf(els.value)
		}
	}
}

func (j *readJob) time(name string, v bson.RawValue) {
	var into *time.Time
	switch name {
	case "enqueued_at":
		into = &j.enqueuedAt
	case "available_at":
		into = &j.availableAt
	case "claimed_at":
		into = &j.claimedAt
	case "lease_until":
		into = &j.leaseUntil
	case "finished_at":
		into = &j.finishedAt
	case "expire_at":
		into = &j.expireAt
	default:
		return
	}
	if t, ok := momentOf(v); ok {
		*into = t
	}
}

// settleTimes replaces what no server wrote by what the server's seq tells, and
// sets the settings that a foreign producer may leave out.
func (j *readJob) settleTimes() {
	if !j.seq.IsZero() {
		first := timeOf(j.seq).UTC()
		last := first.Add(time.Second - time.Millisecond)
		switch {
		case j.enqueuedAt.Before(first):
			j.enqueuedAt = first
		case j.enqueuedAt.After(last):
			j.enqueuedAt = last
		}
	}
	if j.availableAt.Before(j.enqueuedAt) {
		j.availableAt = j.enqueuedAt
	}
	if j.maxAttempts <= 0 {
		j.maxAttempts = core.DefaultMaxAttempts
	}
}

func failureOf(v bson.RawValue) storedFailure {
	var f storedFailure
	els := walk(v.Value)
	for v.Type == bson.TypeEmbeddedDocument && els.next() {
		switch string(els.name) {
		case "code":
			f.Code, _ = textOf(els.value)
		case "reason":
			f.Reason, _ = textOf(els.value)
		case "at":
			f.At, _ = momentOf(els.value)
		}
	}
	return f
}

// count32 is a small number that is not negative, or what stands for one that
// can't be read.
func count32(v bson.RawValue, otherwise int) int {
	n, ok := wholeOf(v)
	if !ok || n < 0 || n > math.MaxInt32 {
		return otherwise
	}
	return int(n)
}

// jobName is a job's id as people and commands write it: that of a parked event
// is its cursor and its own id, with a slash between them.
func jobName(id bson.RawValue) string {
	if text, ok := textOf(id); ok {
		return text
	}
	if id.Type != bson.TypeEmbeddedDocument {
		return ""
	}
	var cursor, event string
	els := walk(id.Value)
	for els.next() {
		switch string(els.name) {
		case "cursor":
			cursor, _ = textOf(els.value)
		case "event":
			var ok bool
			if event, ok = textOf(els.value); !ok {
				event = els.value.String()
			}
		}
	}
	return cursor + "/" + event
}

// idsNamed are the ids that jobName writes so.
func (s *Store) idsNamed(name string) bson.A {
	ids := valuesNamed(name)
	for i := range len(name) {
		if name[i] != '/' {
			continue
		}
		for _, event := range valuesNamed(name[i+1:]) {
			ids = append(ids, bson.D{{Key: "log", Value: s.cfg.Collection}, {Key: "cursor", Value: name[:i]}, {Key: "event", Value: event}})
		}
	}
	return ids
}

// valuesNamed are the values that textOf reads so, except for numbers of other
// types than int64, which the server compares alike.
func valuesNamed(name string) bson.A {
	values := bson.A{name}
	if id, err := uuid.Parse(name); err == nil && id.String() == name {
		values = append(values, uuidValue(id))
	}
	if id, err := bson.ObjectIDFromHex(name); err == nil {
		values = append(values, id)
	}
	if n, err := strconv.ParseInt(name, 10, 64); err == nil && strconv.FormatInt(n, 10) == name {
		values = append(values, n)
	}
	// What is no event's id is named by its Extended JSON.
	var other struct{ V bson.RawValue }
	if err := bson.UnmarshalExtJSON([]byte(`{"v":`+name+`}`), true, &other); err == nil && other.V.String() == name &&
		other.V.Type != bson.TypeString && other.V.Type != bson.TypeNull { // null is also what is missing
		values = append(values, other.V)
	}
	return values
}

func uuidValue(id uuid.UUID) bson.Binary {
	return bson.Binary{Subtype: bson.TypeBinaryUUID, Data: slices.Clone(id[:])}
}

// early tells of a job that was lent before its not_before: who enqueued it did
// not write available_at, by which claims look.
func (j *readJob) early(now time.Time) bool {
	return j.notBefore.After(now) && j.notBefore.After(j.availableAt)
}

// holds tells that the failed job of a cursor holds its key.
func (j *readJob) holds() bool { return j.state == core.JobFailed && j.open }

// info shows a job to people.
func (j *readJob) info() core.JobInfo {
	info := core.JobInfo{
		ID: jobName(j.id), EventID: j.event.ID, Aggregate: j.event.Aggregate, AggregateID: j.event.AggregateID, Type: j.event.Type,
		Tenant: j.event.Tenant, CorrelationID: j.event.CorrelationID, Sink: j.sink, Cursor: j.cursor, State: j.state,
		Priority: j.priority, Attempts: j.attempts, MaxAttempts: j.maxAttempts, Redeliveries: j.redeliveries,
		DedupKey: j.dedupKey, EnqueuedAt: j.enqueuedAt, AvailableAt: j.availableAt, FinishedAt: j.finishedAt,
		ExpireAt: j.expireAt, Failure: core.Failure{Code: j.failure.Code, Reason: j.failure.Reason}, FailedAt: j.failure.At,
		Result: j.result, PayloadBytes: j.payloadBytes,
	}
	info.Holds = j.holds()
	if j.state == core.JobActive {
		info.LeaseUntil, info.Owner = j.leaseUntil, j.owner
	}
	return info
}
