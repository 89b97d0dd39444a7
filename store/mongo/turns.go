package mongo

import (
	"cmp"
	"context"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/gooutbox/outbox/core"
)

// turnsAtOnce is how many tenants one command reads.
const turnsAtOnce = 100

// turns finds the first due jobs of several tenants, who take turns within each
// class. It first asks for an equal share of each, and then for more of those
// who may have jobs that come before some that were found.
func (s *Store) turns(ctx context.Context, req core.ClaimRequest) ([]head, error) {
	want := req.Max + max(req.Spread, 0)
	all := s.newTurns(req, want)
	var merged []head
	for todo := all; len(todo) > 0; {
		if err := s.readTurns(ctx, todo); err != nil {
			return nil, err
		}
		merged = inTurns(all, want)
		todo = slices.DeleteFunc(slices.Clone(all), func(t *turn) bool { return !t.widen(merged, want) })
	}
	for _, t := range all {
		mine := slices.DeleteFunc(slices.Clone(merged), func(h head) bool { return h.tenant != t.tenant })
		// Of a tenant of whom nothing is taken no place is known.
		s.queue.note(t.query, mine, max(1, len(mine)), req.Spread, t.took)
	}
	return merged, nil
}

// turn is what was found of one tenant.
type turn struct {
	tenant int
	query  query
	limit  int
	found  []head
	took   time.Duration
}

func (s *Store) newTurns(req core.ClaimRequest, want int) []*turn {
	share := (want + len(req.Tenants) - 1) / len(req.Tenants)
	known := map[string]bool{}
	var all []*turn
	for i, tenant := range req.Tenants {
		if !known[tenant] {
			known[tenant] = true
			all = append(all, &turn{tenant: i, query: s.queue.query(keyOf(req, i)), limit: share})
		}
	}
	return all
}

// widen makes the turn read again, further, if it has to: merged are the first
// jobs of all that was found.
func (t *turn) widen(merged []head, want int) bool {
	switch {
	case len(t.found) < t.limit && t.query.narrow():
		t.query = t.query.whole()
		return true
	case len(t.found) < t.limit || t.limit >= want:
		return false
	}
	next := t.found[len(t.found)-1] // or one that is later
	next.turn++
	if len(merged) < want || next.compare(merged[len(merged)-1]) < 0 {
		t.limit = want
		return true
	}
	return false
}

func (h head) compare(other head) int {
	return cmp.Or(cmp.Compare(h.rank, other.rank), cmp.Compare(h.turn, other.turn), cmp.Compare(h.tenant, other.tenant))
}

// inTurns are the first jobs of all tenants, who take turns.
func inTurns(all []*turn, want int) []head {
	var merged []head
	for _, t := range all {
		for i := range t.found {
			if i > 0 && t.found[i].rank == t.found[i-1].rank {
				t.found[i].turn = t.found[i-1].turn + 1
			}
		}
		merged = append(merged, t.found...)
	}
	slices.SortFunc(merged, head.compare)
	return merged[:min(want, len(merged))]
}

// readTurns reads the first jobs of tenants, for each as many as its limit.
func (s *Store) readTurns(ctx context.Context, turns []*turn) error {
	for some := range slices.Chunk(turns, turnsAtOnce) {
		sent := time.Now()
		if err := s.readSomeTurns(ctx, some); err != nil {
			return err
		}
		for _, t := range some {
			t.took = time.Since(sent) / time.Duration(len(some))
		}
	}
	return nil
}

func (s *Store) readSomeTurns(ctx context.Context, some []*turn) error {
	parts := make([]bson.A, len(some))
	byTenant := map[int]*turn{}
	for i, t := range some {
		t.found = nil
		byTenant[t.tenant] = t
		parts[i] = bson.A{
			op("$match", t.query.filter()), op("$sort", claimOrder), op("$limit", t.limit),
			op("$project", append(bson.D{{Key: "turn", Value: literal(t.tenant)}}, headFields...)),
		}
	}
	cur, err := s.queue.latest.Aggregate(ctx, s.union(parts))
	if err != nil {
		return err
	}
	defer cur.Close(ctx) //nolint:errcheck // nothing was written
	for cur.Next(ctx) {
		raw := slices.Clone(cur.Current)
		if t := byTenant[count32(raw.Lookup("turn"), -1)]; t != nil {
			t.found = append(t.found, headOf(raw, t.tenant))
		}
	}
	return cur.Err()
}

// union is the pipeline that gives what each of several pipelines over the jobs
// gives.
func (s *Store) union(parts []bson.A) bson.A {
	pipeline := slices.Clone(parts[0])
	for _, part := range parts[1:] {
		pipeline = append(pipeline, op("$unionWith", bson.D{{Key: "coll", Value: s.jobs.Name()}, {Key: "pipeline", Value: part}}))
	}
	return pipeline
}
