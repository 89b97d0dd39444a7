package mongo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/gooutbox/outbox/core"
)

const (
	// claimTries is how often a claim looks again when others took all that it
	// had found.
	claimTries = 3
	// undoPatience bounds how long a claim that failed is undone.
	undoPatience = 2 * time.Second
)

// Claim lends due jobs, see core.Queue. It takes two round trips, one more where
// others claim at the same time or jobs of several tenants take turns, and one
// for a single job.
//
// A claim whose write the majority did not acknowledge is an error, and lends
// nothing: what it may have written is undone where the server can be reached,
// else taken back when its leases have run out.
func (s *Store) Claim(ctx context.Context, req core.ClaimRequest) ([]*core.Claimed, error) {
	claimed, err := s.claim(withoutSession(ctx), req)
	if err != nil {
		return nil, fmt.Errorf("claiming jobs: %w", err)
	}
	return claimed, nil
}

func (s *Store) claim(ctx context.Context, req core.ClaimRequest) ([]*core.Claimed, error) {
	if req.Sink == "" || req.Max <= 0 {
		return nil, errors.New("a claim needs a sink and a largest number")
	}
	if req.Lease <= 0 {
		req.Lease = core.DefaultJobLease
	}
	if req.Lease < time.Millisecond {
		return nil, fmt.Errorf("a lease of %s is too short", req.Lease)
	}
	if req.Tenants != nil && len(req.Tenants) == 0 {
		return nil, nil
	}
	if err := s.checkLayout(ctx); err != nil {
		return nil, err
	}
	if req.Max == 1 && req.Spread <= 0 && len(req.Tenants) < 2 {
		return s.claimOne(ctx, req)
	}
	for try := range claimTries {
		found, err := s.candidates(ctx, req)
		if err != nil || len(found) == 0 {
			return nil, err
		}
		claimed, err := s.lend(ctx, req, found)
		if err != nil || len(claimed) > 0 || try == claimTries-1 {
			return claimed, err
		}
		req.Spread += 1 + rand.IntN(2*req.Max) //nolint:gosec // no secret
	}
	return nil, nil
}

// candidates are the jobs that a claim would take, in order.
func (s *Store) candidates(ctx context.Context, req core.ClaimRequest) ([]head, error) {
	if len(req.Tenants) > 1 {
		found, err := s.turns(ctx, req)
		return window(found, req.Spread, req.Max), err
	}
	found, err := s.heads(ctx, req)
	return window(found, req.Spread, req.Max), err
}

// window takes up to n jobs, of each class first those from the spread on, and
// then those before it. found begins with the first of the due jobs, and holds
// spread more than n if there are so many.
func window(found []head, spread, n int) []head {
	if spread > 0 {
		var turned []head
		for rest := found; len(rest) > 0; {
			end := slices.IndexFunc(rest, func(h head) bool { return h.rank != rest[0].rank })
			if end < 0 {
				end = len(rest)
			}
			start := spread % end
			turned = append(append(turned, rest[start:end]...), rest[:start]...)
			rest = rest[end:]
		}
		found = turned
	}
	return found[:min(n, len(found))]
}

var wasClaimed = op("$ne", bson.A{op("$type", "$claimed_at"), "missing"})

// lending is what a claim writes into a job. A job that is ready has the token
// of the lease that made it so, unless that was taken back: it is kept, for a
// holder that asks late whether it had settled.
func lending(req core.ClaimRequest, token bson.Binary) bson.A {
	owner := any("$$REMOVE")
	if req.Owner != "" {
		owner = literal(req.Owner)
	}
	return bson.A{op("$set", bson.D{
		{Key: "state", Value: core.JobActive},
		{Key: "token", Value: token},
		{Key: "settled_token", Value: op("$cond", bson.A{wasClaimed, "$token", "$$REMOVE"})},
		{Key: "owner", Value: owner},
		{Key: "claimed_at", Value: "$$NOW"},
		{Key: "lease_until", Value: leaseFromNow(req.Lease)},
	})}
}

// claimOne claims the first due job in one round trip.
func (s *Store) claimOne(ctx context.Context, req core.ClaimRequest) ([]*core.Claimed, error) {
	q := s.queue.query(keyOf(req, 0))
	token := newToken()
	for {
		sent := time.Now()
		var raw bson.Raw
		err := s.withHint(ctx, q.hint(), func(hint any) (err error) {
			opts := options.FindOneAndUpdate().SetSort(claimOrder).SetReturnDocument(options.After).SetHint(hint)
			raw, err = s.jobs.FindOneAndUpdate(ctx, q.filter(), lending(req, token), opts).Raw()
			return err
		})
		switch {
		case errors.Is(err, mongo.ErrNoDocuments) && q.narrow():
			q = q.whole()
			continue
		case errors.Is(err, mongo.ErrNoDocuments):
			s.queue.note(q, nil, 1, 0, time.Since(sent))
			return nil, nil
		case err != nil:
			s.undo(ctx, bson.D{
				{Key: "state", Value: core.JobActive}, {Key: "lease_until", Value: op("$gt", bson.DateTime(0))}, {Key: "token", Value: token},
			}, err)
			return nil, err
		}
		s.queue.note(q, []head{headOf(raw, 0)}, 1, 0, time.Since(sent))
		j := s.decodeJob(ctx, raw)
		if j.early(j.claimedAt) {
			if err := s.putOff(ctx, bson.A{j.id}, token); err != nil {
				return nil, err
			}
			continue
		}
		return []*core.Claimed{s.claimed(&j, &lease{id: j.id, token: token}, j.claimedAt, sent.Add(req.Lease))}, nil
	}
}

// lend makes the jobs that are still as they were found the caller's.
func (s *Store) lend(ctx context.Context, req core.ClaimRequest, found []head) ([]*core.Claimed, error) {
	token := newToken()
	ids := make(bson.A, len(found))
	// A job that was lent and came back since it was found is another one than
	// what is known of it: its last claim has another time.
	times := bson.A{nil}
	for i, h := range found {
		ids[i] = h.id
		if !h.claimedAt.IsZero() && !slices.ContainsFunc(times[1:], func(t any) bool { return h.claimedAt.Equal(t.(bson.RawValue)) }) {
			times = append(times, h.claimedAt)
		}
	}
	sent := time.Now()
	res, err := s.jobs.UpdateMany(ctx, bson.D{
		{Key: "_id", Value: op("$in", ids)},
		{Key: "state", Value: core.JobReady},
		{Key: "claimed_at", Value: op("$in", times)},
		isDue(),
	}, lending(req, token), options.UpdateMany().SetHint(byID))
	if err != nil {
		s.undoAll(ctx, ids, token, err)
		return nil, err
	}
	docs := make([]bson.Raw, 0, len(found))
	switch {
	case res.ModifiedCount == 0:
		return nil, nil
	case res.ModifiedCount == int64(len(found)) && found[0].whole:
		for _, h := range found {
			docs = append(docs, h.raw)
		}
	default:
		if docs, err = s.won(ctx, ids, token); err != nil {
			return nil, err
		}
	}
	now := s.serverTime(ctx)
	claimed := make([]*core.Claimed, 0, len(docs))
	var early bson.A
	for _, raw := range docs {
		j := s.decodeJob(ctx, raw)
		at := now
		if !found[0].whole || len(docs) < len(found) {
			at = j.claimedAt
		}
		if j.early(at) {
			early = append(early, j.id)
			continue
		}
		claimed = append(claimed, s.claimed(&j, &lease{id: j.id, token: token}, at, sent.Add(req.Lease)))
	}
	if len(early) > 0 {
		if err := s.putOff(ctx, early, token); err != nil {
			s.undoAll(ctx, ids, token, nil)
			return nil, err
		}
	}
	return claimed, nil
}

// putOff gives back jobs that are not due before their not_before, and writes it
// where claims look.
func (s *Store) putOff(ctx context.Context, ids bson.A, token bson.Binary) error {
	_, err := s.jobs.UpdateMany(ctx, bson.D{
		{Key: "_id", Value: op("$in", ids)}, {Key: "token", Value: token}, {Key: "state", Value: core.JobActive},
	}, bson.A{op("$set", released("$not_before"))}, options.UpdateMany().SetHint(byID))
	if err != nil {
		return fmt.Errorf("putting jobs off until their not_before: %w", err)
	}
	return nil
}

// won reads which jobs a claim got, in the order of their ids. When that fails
// they are given back: nobody would deliver them before their lease ends.
func (s *Store) won(ctx context.Context, ids bson.A, token bson.Binary) (docs []bson.Raw, err error) {
	cur, err := s.queue.latest.Find(ctx, bson.D{{Key: "_id", Value: op("$in", ids)}, {Key: "token", Value: token}},
		options.Find().SetHint(byID))
	if err == nil {
		err = cur.All(ctx, &docs)
	}
	if err != nil {
		s.undoAll(ctx, ids, token, nil)
		return nil, err
	}
	place := make(map[string]int, len(ids))
	for i, id := range ids {
		place[idKey(id.(bson.RawValue))] = i
	}
	slices.SortFunc(docs, func(a, b bson.Raw) int { return place[idKey(a.Lookup("_id"))] - place[idKey(b.Lookup("_id"))] })
	return docs, nil
}

// undoAll is undo of a claim of jobs by id.
func (s *Store) undoAll(ctx context.Context, ids bson.A, token bson.Binary, err error) {
	s.undo(ctx, bson.D{
		{Key: "_id", Value: op("$in", ids)}, {Key: "token", Value: token}, {Key: "state", Value: core.JobActive},
	}, err)
}

// undo gives back what a claim that ended in an error may have written: a server
// that refused has written nothing. nil stands for one that was written.
func (s *Store) undo(ctx context.Context, filter bson.D, err error) {
	if err != nil && isServerError(err) && !isWriteConcernError(err) && !isTransient(err) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoPatience)
	defer cancel()
	_, _ = s.jobs.UpdateMany(ctx, filter, bson.A{op("$set", released(nil))}) // else it is taken back later
}

// isWriteConcernError tells of a write that was made, but that the majority did
// not acknowledge.
func isWriteConcernError(err error) bool {
	if we, ok := errors.AsType[mongo.WriteException](err); ok {
		return we.WriteConcernError != nil
	}
	if be, ok := errors.AsType[mongo.BulkWriteException](err); ok {
		return be.WriteConcernError != nil
	}
	return false
}
