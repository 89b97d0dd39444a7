package memory

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/gooutbox/outbox/core"
)

// Operations of the queue that Config.Fault and Config.Lost are told.
const (
	OpEnqueue   = "enqueue"
	OpClaim     = "claim"
	OpExtend    = "extend"
	OpSettle    = "settle"
	OpTakeBack  = "take back"
	OpTenants   = "tenants"
	OpNextDue   = "next due"
	OpPauses    = "pauses"
	OpPause     = "pause"
	OpResume    = "resume"
	OpWatch     = "watch"
	OpCleanJobs = "clean jobs"
)

var _ core.Queue = (*Store)(nil)

// queue is what the store knows of jobs, guarded by its mutex.
type queue struct {
	jobs map[string]*job // by id
	// seq numbers jobs in the order of their commits, tokens the claims.
	seq, tokens uint64
	pauses      map[core.PauseTarget]core.Pause
	watchers    map[*watcher]struct{}
	acts        []core.ActRecord // oldest first
}

func newQueue() queue {
	return queue{
		jobs:     map[string]*job{},
		pauses:   map[core.PauseTarget]core.Pause{},
		watchers: map[*watcher]struct{}{},
	}
}

// job is a job as the queue holds it.
type job struct {
	core.Job
	id  string
	seq uint64
	// hash is that of the content, which outlives the payload.
	hash [sha256.Size]byte
	// cursor that parked it, and the event's position; empty for others.
	cursor   string
	position core.Position
	holds    bool // its key, once it failed
	// err is why it can't be decoded, if so.
	err error

	state                  core.JobState
	attempts, redeliveries int
	redriven, discarded    bool
	redelivered            bool // an earlier try may have arrived
	enqueuedAt             time.Time
	// availableAt is when it is due: zero, before all others, without
	// NotBefore.
	availableAt time.Time
	// token is that of the last claim. It stays when its holder settles the
	// job, and goes when the lease is taken back.
	token      uint64
	owner      string
	leaseUntil time.Time

	result               string
	failure              core.Failure
	failedAt, finishedAt time.Time
	expireAt             time.Time // zero means never
}

// namespace of the ids that are made of dedup keys.
var namespace = uuid.MustParse("2f1a7c06-3a55-5d0b-9a0c-6f7be2a3f3a1")

// newJob copies what the caller may change later, and assigns an id.
func newJob(j core.Job, now time.Time) *job {
	id := uuid.Must(uuid.NewV7())
	if j.DedupKey != "" {
		id = uuid.NewSHA1(namespace, fmt.Appendf(nil, "%d:%s%s", len(j.Tenant), j.Tenant, j.DedupKey))
	}
	hash := contentHash(j)
	if j.ID == "" {
		j.ID = id.String()
	}
	if j.MaxAttempts == 0 {
		j.MaxAttempts = core.DefaultMaxAttempts
	}
	j.Event = newDocument(j.Event, now).event
	j.NotBefore = j.NotBefore.UTC().Truncate(time.Millisecond)
	return &job{Job: j, id: id.String(), hash: hash, state: core.JobReady, availableAt: j.NotBefore}
}

// contentHash is equal for jobs that deliver the same.
func contentHash(j core.Job) [sha256.Size]byte {
	j.ID, j.OccurredAt = "", time.Time{}
	data, err := json.Marshal(struct {
		Sink  string
		Event core.Event
	}{j.Sink, j.Event})
	if err != nil {
		panic(err) // text, numbers and bytes alone
	}
	return sha256.Sum256(data)
}

// event is a copy of the job's event for a sink.
func (j *job) event() core.Event {
	e := j.Event
	e.Payload, e.Headers = bytes.Clone(e.Payload), maps.Clone(e.Headers)
	return e
}

// due tells whether the job is to be delivered now.
func (j *job) due(now time.Time) bool {
	return j.state == core.JobReady && !j.availableAt.After(now)
}

// waitsSince is when the job was there and due.
func (j *job) waitsSince() time.Time {
	if j.availableAt.After(j.enqueuedAt) {
		return j.availableAt
	}
	return j.enqueuedAt
}

// inOrder sorts jobs as they are claimed: by class, by when they fell due, and
// by their commits.
func inOrder(jobs []*job) []*job {
	slices.SortFunc(jobs, func(a, b *job) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), a.availableAt.Compare(b.availableAt), cmp.Compare(a.seq, b.seq))
	})
	return jobs
}

// ready returns the ready jobs of a sink, due or not, that are claimed by
// workers: those of cursors are not. nil means any tenant. The caller holds mu.
func (s *Store) ready(sink string, tenants []string) []*job {
	var found []*job
	for _, j := range s.queue.jobs {
		if j.state == core.JobReady && j.Sink == sink && j.cursor == "" &&
			(tenants == nil || slices.Contains(tenants, j.Tenant)) {
			found = append(found, j)
		}
	}
	return inOrder(found)
}

// held returns the job that the claim lent, or nil when its lease has moved on.
// The caller holds mu.
func (s *Store) held(c *core.Claimed) *job {
	r, ok := c.Ref.(ref)
	if !ok {
		return nil
	}
	if j := s.queue.jobs[r.id]; j != nil && j.token == r.token {
		return j
	}
	return nil
}

// ref is Claimed.Ref.
type ref struct {
	id    string
	token uint64
}
