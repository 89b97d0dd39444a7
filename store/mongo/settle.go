package mongo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/gooutbox/outbox/core"
)

// maxResultBytes is how much of a receipt is stored.
const maxResultBytes = 1024

// cutText keeps what the layout allows of a text, whole characters only.
func cutText(text string, limit int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "")
}

// errNotLent: a job was not lent by this store.
var errNotLent = errors.New("a job that another store lent, or none")

// Settle writes what became of claimed jobs, see core.Queue: in one round trip,
// and another where some are not as they were lent.
//
// Those that were lent by one claim and end in the same way are one update,
// whose filter names the claim's token.
func (s *Store) Settle(ctx context.Context, settlements []core.Settlement) ([]*core.Claimed, error) {
	lost, err := s.settle(withoutSession(ctx), settlements)
	if err != nil {
		return nil, fmt.Errorf("settling jobs: %w", err)
	}
	return lost, nil
}

func (s *Store) settle(ctx context.Context, settlements []core.Settlement) ([]*core.Claimed, error) {
	groups, jobs, err := groupSettlements(settlements)
	if err != nil || len(groups) == 0 {
		return nil, err
	}
	models := make([]mongo.WriteModel, len(groups))
	gaveBack := false
	for i, g := range groups {
		models[i] = heldUpdate(g.ids, g.token, s.settling(g))
		gaveBack = gaveBack || g.kind == core.GiveBack
	}
	if gaveBack {
		defer s.queue.forget()
	}
	written, err := s.updateHeld(ctx, models)
	if err != nil || written == len(jobs) {
		return nil, err
	}
	held, settled, err := s.holds(ctx, jobs)
	if err != nil {
		return nil, err
	}
	// More was written than is still as it was written: some jobs were claimed
	// again at once.
	if written > len(held) {
		maps.Copy(held, settled)
	}
	return without(jobs, held), nil
}

// group are settlements that are written alike, but for values of their own.
type group struct {
	groupKey
	token   bson.Binary
	ids     bson.A
	results []any
	codes   []any
	reasons []any
	delays  []any
}

type groupKey struct {
	tokenText string
	kind      core.SettleKind
	uncounted bool
	failure   bool
	parked    bool
	holds     bool
}

func groupSettlements(settlements []core.Settlement) ([]*group, []*core.Claimed, error) {
	var groups []*group
	known := map[groupKey]*group{}
	jobs := make([]*core.Claimed, 0, len(settlements))
	seen := map[string]bool{}
	for _, one := range settlements {
		if one.Kind < core.Complete || one.Kind > core.GiveBack {
			return nil, nil, fmt.Errorf("there is no kind %d of settlement", one.Kind)
		}
		if one.Job == nil {
			return nil, nil, errNotLent
		}
		l, ok := leaseOf(one.Job)
		if !ok {
			return nil, nil, errNotLent
		}
		key := groupKey{
			tokenText: string(l.token.Data), kind: one.Kind, uncounted: one.Uncounted && one.Kind == core.Retry,
			failure: one.Failure != core.Failure{}, parked: l.parked, holds: one.Holds && l.parked && one.Kind == core.Fail,
		}
		name := key.tokenText + idKey(l.id)
		if seen[name] {
			continue // the first one stands, as if it had been written before
		}
		seen[name] = true
		g := known[key]
		if g == nil {
			g = &group{groupKey: key, token: l.token}
			known[key] = g
			groups = append(groups, g)
		}
		g.ids = append(g.ids, l.id)
		g.results = append(g.results, cutText(one.Receipt, maxResultBytes))
		g.codes = append(g.codes, one.Failure.Code)
		g.reasons = append(g.reasons, cutReason(one.Failure.Reason))
		g.delays = append(g.delays, max(0, one.Delay).Milliseconds())
		jobs = append(jobs, one.Job)
	}
	return groups, jobs, nil
}

// settling is the update of a group.
func (s *Store) settling(g *group) bson.D {
	set := bson.D{}
	if g.kind != core.GiveBack && !g.uncounted {
		set = append(set, bson.E{Key: "attempts", Value: op("$add", bson.A{countIn("attempts"), 1})})
	}
	if g.failure {
		set = append(set, bson.E{Key: "failure", Value: bson.D{
			{Key: "code", Value: g.each(g.codes)}, {Key: "reason", Value: g.each(g.reasons)}, {Key: "at", Value: "$$NOW"},
		}})
	}
	switch g.kind {
	case core.Complete:
		set = append(set, ended(core.JobCompleted, s.cfg.CompletedRetention)...)
		if !allEmpty(g.results) {
			set = append(set, bson.E{Key: "result", Value: g.each(g.results)})
		}
		if s.cfg.Retain != RetainAll {
			set = append(set, withoutPayload...)
		}
		if g.parked {
			set = append(set, notOpen)
		}
	case core.Retry:
		set = append(set, released(op("$add", bson.A{"$$NOW", g.each(g.delays)}))...)
		if slices.Contains(g.codes, any(core.CodeUnknown)) {
			arrived := op("$eq", bson.A{g.each(g.codes), core.CodeUnknown})
			set = append(set, bson.E{Key: "redelivered", Value: op("$or", bson.A{"$redelivered", arrived})})
		}
	case core.GiveBack:
		set = append(set, released(op("$cond", bson.A{
			op("$gt", bson.A{g.each(g.delays), 0}), op("$add", bson.A{"$$NOW", g.each(g.delays)}), "$available_at",
		}))...)
	case core.Fail:
		set = append(set, s.failed(g.parked)...)
		if g.parked {
			set = append(set, bson.E{Key: "hold", Value: trueOrNone(g.holds)}, bson.E{Key: "open", Value: trueOrNone(g.holds)})
		}
	case core.EndUnknown:
		set = append(set, s.unknown(g.parked)...)
	}
	return set
}

// notOpen takes a job of a cursor out of those that are to be delivered or hold
// their key.
var notOpen = bson.E{Key: "open", Value: "$$REMOVE"}

// trueOrNone is a field that is true or not there.
func trueOrNone(is bool) any {
	if is {
		return true
	}
	return "$$REMOVE"
}

// unknown are the fields of a job that may have been delivered.
func (s *Store) unknown(parked bool) bson.D {
	set := ended(core.JobUnknown, 0)
	switch {
	case parked:
		set = append(set, notOpen)
	case s.cfg.Retain == RetainNone:
		set = append(set, withoutPayload...)
	}
	return set
}

// failed are the fields of a job that is given up. One from a cursor is kept
// until a person decides.
func (s *Store) failed(parked bool) bson.D {
	if parked {
		return ended(core.JobFailed, 0)
	}
	set := ended(core.JobFailed, s.cfg.FailedRetention)
	if s.cfg.Retain == RetainNone {
		set = append(set, withoutPayload...)
	}
	return set
}

// ended are the fields of a job in a final state, which is kept for so long, or
// for ever if 0. Its token stays, so that a repeat of the settlement finds what
// it wrote.
func ended(state core.JobState, keep time.Duration) bson.D {
	set := bson.D{
		{Key: "state", Value: state},
		{Key: "finished_at", Value: "$$NOW"},
		{Key: "lease_until", Value: "$$REMOVE"},
	}
	if keep > 0 {
		set = append(set, bson.E{Key: "expire_at", Value: fromNow(keep)})
	}
	return set
}

// withoutPayload removes what Config.Retain says. The hash stays.
var withoutPayload = bson.D{
	{Key: "payload", Value: "$$REMOVE"},
	{Key: "document", Value: "$$REMOVE"},
	{Key: "reference", Value: "$$REMOVE"},
	{Key: "codec", Value: "$$REMOVE"},
	{Key: "key_id", Value: "$$REMOVE"},
}

// released are the fields of a job that is ready again, due at a time, or when
// it was before if nil.
func released(availableAt any) bson.D {
	set := bson.D{
		{Key: "state", Value: core.JobReady},
		{Key: "lease_until", Value: "$$REMOVE"},
		{Key: "owner", Value: "$$REMOVE"},
	}
	if availableAt != nil {
		set = append(set, bson.E{Key: "available_at", Value: availableAt})
	}
	return set
}

// each is an expression for the value that belongs to the job at hand.
func (g *group) each(values []any) any {
	same := true
	for _, v := range values {
		same = same && v == values[0]
	}
	if same {
		return literal(values[0])
	}
	return op("$arrayElemAt", bson.A{literal(bson.A(values)), op("$indexOfArray", bson.A{literal(g.ids), "$_id"})})
}

func allEmpty(values []any) bool {
	for _, v := range values {
		if v != "" {
			return false
		}
	}
	return true
}

// heldUpdate changes jobs that are still lent under a token.
func heldUpdate(ids bson.A, token bson.Binary, set bson.D) mongo.WriteModel {
	return mongo.NewUpdateManyModel().SetHint(byID).SetUpdate(bson.A{op("$set", set)}).SetFilter(bson.D{
		{Key: "_id", Value: op("$in", ids)}, {Key: "state", Value: core.JobActive}, {Key: "token", Value: token},
	})
}

// updateHeld sends updates in one command, and tells how many jobs they found.
func (s *Store) updateHeld(ctx context.Context, models []mongo.WriteModel) (int, error) {
	res, err := s.jobs.BulkWrite(ctx, models, options.BulkWrite().SetOrdered(false))
	if err != nil {
		return 0, err
	}
	return int(res.MatchedCount), nil
}

// holds tells which jobs are still under the token of their lease, with their
// states, and which were settled under it and are lent again since.
func (s *Store) holds(ctx context.Context, jobs []*core.Claimed) (held, settled map[*core.Claimed]core.JobState, err error) {
	ids := make(bson.A, 0, len(jobs))
	byKey := map[string][]*core.Claimed{}
	for _, job := range jobs {
		l, _ := leaseOf(job)
		ids = append(ids, l.id)
		key := string(l.token.Data) + idKey(l.id)
		byKey[key] = append(byKey[key], job)
	}
	cur, err := s.queue.latest.Find(ctx, bson.D{{Key: "_id", Value: op("$in", ids)}},
		options.Find().SetHint(byID).SetProjection(bson.D{
			{Key: "token", Value: 1}, {Key: "settled_token", Value: 1}, {Key: "state", Value: 1},
		}))
	if err != nil {
		return nil, nil, fmt.Errorf("looking for what was settled before: %w", err)
	}
	defer cur.Close(ctx) //nolint:errcheck // nothing was written
	held, settled = map[*core.Claimed]core.JobState{}, map[*core.Claimed]core.JobState{}
	for cur.Next(ctx) {
		id := idKey(cur.Current.Lookup("_id"))
		state, _ := cur.Current.Lookup("state").StringValueOK()
		for field, found := range map[string]map[*core.Claimed]core.JobState{"token": held, "settled_token": settled} {
			_, token, _ := bytesOf(cur.Current.Lookup(field))
			for _, job := range byKey[string(token)+id] {
				found[job] = core.JobState(state)
			}
		}
	}
	if err := cur.Err(); err != nil {
		return nil, nil, fmt.Errorf("looking for what was settled before: %w", err)
	}
	return held, settled, nil
}

// without are the jobs that are not among those which are held.
func without(jobs []*core.Claimed, held map[*core.Claimed]core.JobState) []*core.Claimed {
	return slices.DeleteFunc(slices.Clone(jobs), func(job *core.Claimed) bool {
		_, ok := held[job]
		return ok
	})
}
