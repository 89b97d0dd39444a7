package memory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gooutbox/outbox/core"
)

// Claim lends due jobs, see core.Queue.
func (s *Store) Claim(ctx context.Context, req core.ClaimRequest) ([]*core.Claimed, error) {
	return s.ClaimOnly(ctx, req, func(string) bool { return true })
}

// ClaimOnly is Claim of the jobs whose ids are wanted: a model follows another
// store's choice with it.
func (s *Store) ClaimOnly(ctx context.Context, req core.ClaimRequest, wanted func(id string) bool) ([]*core.Claimed, error) {
	claimed, err := s.claim(ctx, req, wanted)
	if err != nil {
		return nil, fmt.Errorf("claiming jobs: %w", err)
	}
	return claimed, nil
}

func (s *Store) claim(ctx context.Context, req core.ClaimRequest, wanted func(id string) bool) ([]*core.Claimed, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if req.Sink == "" || req.Max <= 0 {
		return nil, errors.New("a claim needs a sink and a largest number")
	}
	if req.Lease <= 0 {
		req.Lease = core.DefaultJobLease
	}
	sent := time.Now()
	if err := s.fault(OpClaim); err != nil {
		return nil, err
	}
	return s.lend(req, sent, wanted), s.lost(OpClaim)
}

func (s *Store) lend(req core.ClaimRequest, sent time.Time, wanted func(id string) bool) []*core.Claimed {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.cfg.Now()
	due := slices.DeleteFunc(s.ready(req.Sink, req.Tenants), func(j *job) bool {
		return !j.due(now) || j.Priority.Rank() < req.FromRank || !wanted(j.id)
	})
	due = spread(inTurns(due, req.Tenants), req.Spread)
	s.queue.tokens++
	var claimed []*core.Claimed
	for _, j := range due[:min(req.Max, len(due))] {
		j.state, j.token, j.owner, j.leaseUntil = core.JobActive, s.queue.tokens, req.Owner, now.Add(req.Lease)
		claimed = append(claimed, s.claimed(j, now, sent.Add(req.Lease)))
	}
	return claimed
}

// inTurns puts the first jobs of all tenants before the second ones, within
// each class.
func inTurns(due []*job, tenants []string) []*job {
	if tenants == nil {
		return due
	}
	type group struct {
		class  core.Priority
		tenant string
	}
	seen, turn := map[group]int{}, map[*job]int{}
	for _, j := range due {
		g := group{j.Priority, j.Tenant}
		turn[j] = seen[g]
		seen[g]++
	}
	slices.SortStableFunc(due, func(a, b *job) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(turn[a], turn[b]),
			cmp.Compare(slices.Index(tenants, a.Tenant), slices.Index(tenants, b.Tenant)))
	})
	return due
}

// spread begins each class n jobs further on, and goes round.
func spread(due []*job, n int) []*job {
	var turned []*job
	for len(due) > 0 {
		class := due[0].Priority
		end := slices.IndexFunc(due, func(j *job) bool { return j.Priority != class })
		if end < 0 {
			end = len(due)
		}
		start := max(n, 0) % end
		turned = append(append(turned, due[start:end]...), due[:start]...)
		due = due[end:]
	}
	return turned
}

// claimed shows a lent job to its worker. The caller holds mu.
func (s *Store) claimed(j *job, now, deadline time.Time) *core.Claimed {
	return &core.Claimed{
		ID: j.id,
		Lease: core.Lease{
			Event: j.event(), Deadline: deadline, Attempt: j.attempts + 1,
			Redelivered: j.redelivered, Redriven: j.redriven, Source: s.cfg.Source,
		},
		Sink: j.Sink, Priority: j.Priority, MaxAttempts: j.MaxAttempts, Redeliveries: j.redeliveries,
		EnqueuedAt: j.enqueuedAt, AvailableAt: j.waitsSince(), ClaimedAt: now,
		Err: j.err, Ref: ref{j.id, j.token},
	}
}

// Tenants lists tenants with ready jobs, by name, see core.Queue.
func (s *Store) Tenants(ctx context.Context, sink, after string, limit int) ([]string, error) {
	if err := cmp.Or(ctx.Err(), s.fault(OpTenants)); err != nil {
		return nil, fmt.Errorf("listing tenants: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for _, j := range s.ready(sink, nil) {
		if after == "" || j.Tenant > after {
			names = append(names, j.Tenant)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	return names[:min(max(limit, 0), len(names))], nil
}

// NextDue tells how long until a job is due, see core.Queue.
func (s *Store) NextDue(ctx context.Context, sink string, tenants []string) (time.Duration, bool, error) {
	if err := cmp.Or(ctx.Err(), s.fault(OpNextDue)); err != nil {
		return 0, false, fmt.Errorf("looking for the next due job: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	ready := s.ready(sink, tenants)
	if len(ready) == 0 {
		return 0, false, nil
	}
	next := slices.MinFunc(ready, func(a, b *job) int { return a.availableAt.Compare(b.availableAt) })
	return max(0, next.availableAt.Sub(s.cfg.Now())), true, nil
}
