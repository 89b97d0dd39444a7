package mongo

import (
	"context"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/gooutbox/outbox/core"
)

// claimOrder is the order in which jobs are claimed.
var claimOrder = bson.D{{Key: "rank", Value: 1}, {Key: "available_at", Value: 1}, {Key: "seq", Value: 1}}

// headFields are what a claim must know of a job before it is lent.
var headFields = bson.D{{Key: "rank", Value: 1}, {Key: "available_at", Value: 1}, {Key: "seq", Value: 1}, {Key: "claimed_at", Value: 1}}

// head is a due job that was found.
type head struct {
	id        bson.RawValue
	rank      int
	epoch     bool // due from the beginning, in the order of seq
	seq       bson.Timestamp
	claimedAt bson.RawValue
	tenant    int // among those of the claim
	turn      int // of the tenant, within the class
	raw       bson.Raw
	whole     bool // raw is the whole document
}

func headOf(raw bson.Raw, tenant int) head {
	h := head{raw: raw, tenant: tenant}
	els := walk(raw)
	for els.next() {
		switch string(els.name) {
		case "_id":
			h.id = els.value
		case "rank":
			h.rank = count32(els.value, 0)
		case "available_at":
			h.epoch = els.value.Type == bson.TypeDateTime && els.value.DateTime() == 0
		case "seq":
			h.seq.T, h.seq.I, _ = els.value.TimestampOK()
		case "claimed_at":
			h.claimedAt = els.value
		}
	}
	return h
}

// heads finds the first due jobs of one tenant, or of any: as many as the claim
// wants, and those that its spread passes over.
func (s *Store) heads(ctx context.Context, req core.ClaimRequest) ([]head, error) {
	want := req.Max + max(req.Spread, 0)
	for q := s.queue.query(keyOf(req, 0)); ; q = q.whole() {
		sent := time.Now()
		found, complete, err := s.find(ctx, q, want, req.Spread <= 0)
		if err != nil {
			return nil, err
		}
		if len(found) < want && complete && q.narrow() {
			continue
		}
		s.queue.note(q, found, want, req.Spread, time.Since(sent))
		return found, nil
	}
}

// find reads the first jobs that a query matches: whole, or what a claim needs.
// complete is false when they are too many bytes for one answer of the server.
func (s *Store) find(ctx context.Context, q query, limit int, whole bool) (found []head, complete bool, err error) {
	var cur *mongo.Cursor
	err = s.withHint(ctx, q.hint(), func(hint any) (err error) {
		opts := options.Find().SetSort(claimOrder).SetLimit(int64(limit)).SetBatchSize(batchSize(limit)).SetHint(hint)
		if !whole {
			opts.SetProjection(headFields)
		}
		cur, err = s.queue.latest.Find(ctx, q.filter(), opts)
		return err
	})
	if err != nil {
		return nil, false, err
	}
	defer cur.Close(ctx) //nolint:errcheck // nothing was written
	for len(found) == 0 || cur.RemainingBatchLength() > 0 {
		if !cur.Next(ctx) {
			break
		}
		h := headOf(slices.Clone(cur.Current), 0)
		h.whole = whole
		found = append(found, h)
	}
	return found, cur.ID() == 0, cur.Err()
}

// batchSize lets the server answer at once, and close its cursor.
func batchSize(limit int) int32 { return int32(min(limit, 1<<20)) + 1 } //nolint:gosec // bounded

// withHint runs a read by an index, and without it where the index is missing.
func (s *Store) withHint(ctx context.Context, hint bson.D, run func(hint any) error) error {
	err := run(hint)
	if err == nil || !hasCode(err, codeBadValue) || !strings.Contains(err.Error(), "hint") {
		return err
	}
	s.warnOnce(ctx, "an index of the queue is missing, claims read all jobs: run `outbox indexes`", "error", err)
	return run(nil)
}

// frontierKey names whose jobs a place is about.
type frontierKey struct {
	sink, tenant string
	any          bool // of any tenant
	from         int
}

func keyOf(req core.ClaimRequest, tenant int) frontierKey {
	k := frontierKey{sink: req.Sink, any: req.Tenants == nil, from: max(req.FromRank, 0)}
	if !k.any {
		k.tenant = req.Tenants[tenant]
	}
	return k
}

// frontier is how far claims have come in a class: nearly all jobs before it are
// gone. The server steps over what is left of them in the index one by one, for
// minutes, so reads begin there, and at the head only now and then and when they
// find too little.
type frontier struct {
	rank int
	seq  bson.Timestamp
	// read is when a read last began at the head, and cost how long it took.
	read time.Time
	cost time.Duration
}

const (
	// frontierFresh is how long a place is good at least.
	frontierFresh = 250 * time.Millisecond
	// frontierShare bounds the time that is spent on reads from the head: one part
	// in so many.
	frontierShare = 20
	// maxFrontiers bounds how many places are remembered.
	maxFrontiers = 10_000
)

// query is a read of due jobs.
type query struct {
	key frontierKey
	at  *frontier // nil reads from the head
}

// query begins at the place where claims are, if that is known.
func (q *queue) query(key frontierKey) query {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.frontiers[key]
	if p == nil || p.seq.IsZero() || time.Since(p.read) > max(q.fresh, frontierShare*p.cost) {
		return query{key: key}
	}
	at := *p
	return query{key, &at}
}

func (q query) narrow() bool { return q.at != nil }

func (q query) whole() query { return query{key: q.key} }

// hint is the index that answers the query.
func (q query) hint() bson.D {
	if q.key.any {
		return readyIndex
	}
	return tenantIndex
}

func (q query) filter() bson.D {
	if q.at == nil {
		// A range, also where it holds one class alone: the server sorts by the
		// index then for several values of tenant, too.
		return q.mine(bson.E{Key: "rank", Value: bson.D{{Key: "$gte", Value: q.key.from}, {Key: "$lt", Value: lastRank + 1}}}, isDue())
	}
	here := q.mine(bson.E{Key: "rank", Value: q.at.rank},
		bson.E{Key: "available_at", Value: bson.DateTime(0)}, bson.E{Key: "seq", Value: op("$gte", q.at.seq)})
	if q.at.rank <= q.key.from {
		return here
	}
	higher := q.mine(bson.E{Key: "rank", Value: bson.D{{Key: "$gte", Value: q.key.from}, {Key: "$lt", Value: q.at.rank}}}, isDue())
	// Each branch holds all conditions: with some of them outside, the server may
	// choose to read the index from the head.
	return bson.D{{Key: "$or", Value: bson.A{higher, here}}}
}

// mine matches ready jobs of the sink and tenant.
func (q query) mine(more ...bson.E) bson.D {
	filter := bson.D{{Key: "state", Value: core.JobReady}, {Key: "sink", Value: q.key.sink}}
	switch {
	case q.key.any:
	case q.narrow() && q.key.tenant == "":
		// One range of the index, unlike tenantIs: what it leaves out is found by
		// reads from the head.
		filter = append(filter, bson.E{Key: "tenant", Value: op("$exists", false)})
	default:
		filter = append(filter, bson.E{Key: "tenant", Value: tenantIs(q.key.tenant)})
	}
	return append(filter, more...)
}

// tenantIs matches one tenant, "" the jobs that have none.
func tenantIs(tenant string) any {
	if tenant == "" {
		return op("$in", bson.A{nil, ""})
	}
	return tenant
}

// note keeps the place that a read has come to.
func (q *queue) note(read query, found []head, want, spread int, took time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.frontiers[read.key]
	if p == nil {
		if len(q.frontiers) >= maxFrontiers {
			clear(q.frontiers)
		}
		p = &frontier{}
		q.frontiers[read.key] = p
	}
	if !read.narrow() {
		p.read, p.cost = time.Now(), took
	}
	p.seq = bson.Timestamp{}
	if len(found) < want {
		return
	}
	// What the claim takes is gone; what its spread passes over is not.
	last := found[len(found)-1]
	if spread > 0 {
		last = found[slices.IndexFunc(found, func(h head) bool { return h.rank == last.rank })]
	}
	if last.epoch {
		p.rank, p.seq = last.rank, last.seq
	}
}

// forget makes the next claims read from the head again.
func (q *queue) forget() {
	q.mu.Lock()
	defer q.mu.Unlock()
	clear(q.frontiers)
}
