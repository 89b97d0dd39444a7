package mongo

import (
	"context"
	"fmt"
	"maps"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/gooutbox/outbox/core"
)

// Extend gives jobs a whole lease again, see core.Queue: in one round trip, and
// another where some are no longer lent.
func (s *Store) Extend(ctx context.Context, jobs []*core.Claimed, lease time.Duration) ([]*core.Claimed, error) {
	lost, err := s.extend(withoutSession(ctx), jobs, lease)
	if err != nil {
		return nil, fmt.Errorf("extending leases: %w", err)
	}
	return lost, nil
}

func (s *Store) extend(ctx context.Context, jobs []*core.Claimed, length time.Duration) ([]*core.Claimed, error) {
	if length <= 0 {
		length = core.DefaultJobLease
	}
	if length < time.Millisecond {
		return nil, fmt.Errorf("a lease of %s is too short", length)
	}
	if len(jobs) == 0 {
		return nil, nil
	}
	byToken := map[string]*group{}
	var groups []*group
	seen := map[string]bool{}
	for _, job := range jobs {
		if job == nil {
			return nil, errNotLent
		}
		l, ok := leaseOf(job)
		if !ok {
			return nil, errNotLent
		}
		g := byToken[string(l.token.Data)]
		if g == nil {
			g = &group{token: l.token}
			byToken[string(l.token.Data)] = g
			groups = append(groups, g)
		}
		if name := string(l.token.Data) + idKey(l.id); !seen[name] {
			seen[name] = true
			g.ids = append(g.ids, l.id)
		}
	}
	models := make([]mongo.WriteModel, len(groups))
	for i, g := range groups {
		models[i] = heldUpdate(g.ids, g.token, bson.D{{Key: "lease_until", Value: leaseFromNow(length)}})
	}
	written, err := s.updateHeld(ctx, models)
	if err != nil || written == len(seen) {
		return nil, err
	}
	held, _, err := s.holds(ctx, jobs)
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(held, func(_ *core.Claimed, state core.JobState) bool { return state != core.JobActive })
	return without(jobs, held), nil
}
