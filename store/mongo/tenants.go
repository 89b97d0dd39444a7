package mongo

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/gooutbox/outbox/core"
)

// Tenants lists tenants with ready jobs by name, see core.Queue. It reads one
// index key a tenant.
func (s *Store) Tenants(ctx context.Context, sink, after string, limit int) ([]string, error) {
	if limit <= 0 {
		return nil, nil
	}
	ready := func(tenant any) bson.D {
		return op("$match", bson.D{
			{Key: "state", Value: core.JobReady}, {Key: "sink", Value: sink}, {Key: "tenant", Value: tenant}, {Key: "rank", Value: op("$gte", 0)},
		})
	}
	var parts []bson.A
	if after == "" {
		parts = append(parts, bson.A{
			ready(tenantIs("")), op("$limit", 1), op("$project", bson.D{{Key: "_id", Value: literal("")}}),
		})
	}
	// Above a text are texts alone: what is no name no claim for a tenant finds.
	parts = append(parts, bson.A{
		ready(op("$gt", after)), op("$group", bson.D{{Key: "_id", Value: "$tenant"}}),
		op("$sort", bson.D{{Key: "_id", Value: 1}}), op("$limit", limit),
	})
	cur, err := s.queue.latest.Aggregate(withoutSession(ctx), s.union(parts))
	if err != nil {
		return nil, fmt.Errorf("listing tenants: %w", err)
	}
	var found []struct {
		Tenant string `bson:"_id"`
	}
	if err := cur.All(ctx, &found); err != nil {
		return nil, fmt.Errorf("listing tenants: %w", err)
	}
	var names []string
	for _, f := range found[:min(limit, len(found))] {
		names = append(names, f.Tenant)
	}
	return names, nil
}

// NextDue tells how long until a job is due, see core.Queue. It reads the first
// index key of each class and tenant.
func (s *Store) NextDue(ctx context.Context, sink string, tenants []string) (time.Duration, bool, error) {
	var parts []bson.A
	for rank := range lastRank + 1 {
		for i := range max(1, len(tenants)) {
			filter := bson.D{{Key: "state", Value: core.JobReady}, {Key: "sink", Value: sink}}
			switch {
			case tenants == nil:
			case len(tenants) == 0:
				return 0, false, nil
			default:
				filter = append(filter, bson.E{Key: "tenant", Value: tenantIs(tenants[i])})
			}
			parts = append(parts, bson.A{
				op("$match", append(filter, bson.E{Key: "rank", Value: rank})),
				op("$sort", bson.D{{Key: "available_at", Value: 1}}), op("$limit", 1),
				op("$project", bson.D{{Key: "_id", Value: 0}, {Key: "in", Value: op("$subtract", bson.A{dateIn("available_at", "$$NOW"), "$$NOW"})}}),
			})
		}
	}
	next, found := time.Duration(0), false
	for some := range slices.Chunk(parts, turnsAtOnce) {
		in, ok, err := s.nextDue(withoutSession(ctx), some)
		if err != nil {
			return 0, false, fmt.Errorf("looking for the next due job: %w", err)
		}
		if ok && (!found || in < next) {
			next, found = in, true
		}
	}
	return max(0, next), found, nil
}

func (s *Store) nextDue(ctx context.Context, parts []bson.A) (time.Duration, bool, error) {
	pipeline := append(s.union(parts), op("$group", bson.D{{Key: "_id", Value: nil}, {Key: "in", Value: op("$min", "$in")}}))
	cur, err := s.queue.latest.Aggregate(ctx, pipeline)
	if err != nil {
		return 0, false, err
	}
	var found []struct {
		In int64 `bson:"in"`
	}
	if err := cur.All(ctx, &found); err != nil || len(found) == 0 {
		return 0, false, err
	}
	return time.Duration(min(found[0].In, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond, true, nil
}
