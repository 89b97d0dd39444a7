package sqlite

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gooutbox/outbox/core"
)

// lastRank is the lowest class.
var lastRank = core.Low.Rank()

// waits selects the jobs that workers claim, due or not, as the indexes have it.
const waits = "state = 'ready' AND rank IS NOT NULL AND sink = ?"

// Claim lends due jobs, see core.Queue, in one transaction. No other claim runs
// meanwhile, so Spread only matters for the order; a claim of several tenants
// takes no notice of it.
func (s *Store) Claim(ctx context.Context, req core.ClaimRequest) ([]*core.Claimed, error) {
	claimed, err := s.claim(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("claiming jobs: %w", err)
	}
	return claimed, nil
}

func (s *Store) claim(ctx context.Context, req core.ClaimRequest) (claimed []*core.Claimed, err error) {
	if req.Sink == "" || req.Max <= 0 {
		return nil, errors.New("a claim needs a sink and a largest number")
	}
	if req.Lease <= 0 {
		req.Lease = core.DefaultJobLease
	}
	if req.Tenants != nil && len(req.Tenants) == 0 {
		return nil, nil
	}
	if err := s.prepare(ctx); err != nil {
		return nil, err
	}
	// Workers look far more often than there is something: a look that finds
	// nothing doesn't wait for writers.
	due, there, err := s.nextDue(ctx, s.reads, req.Sink, req.Tenants, req.FromRank)
	if err != nil || !there || due > 0 {
		return nil, err
	}
	err = s.write(ctx, func(tx *sql.Tx) error {
		var seqs []int64
		for rank := max(0, req.FromRank); rank <= lastRank && len(seqs) < req.Max; rank++ {
			some, err := candidates(ctx, tx, req, rank, req.Max-len(seqs))
			if err != nil {
				return err
			}
			seqs = append(seqs, some...)
		}
		var err error
		claimed, err = newLending(s, req.Owner, req.Lease).lend(ctx, tx, seqs, "rank IS NOT NULL")
		return err
	})
	return claimed, err
}

// candidates are the jobs of a class that a claim takes, at most limit, in
// order.
func candidates(ctx context.Context, tx *sql.Tx, req core.ClaimRequest, rank, limit int) ([]int64, error) {
	switch len(req.Tenants) {
	case 0:
	case 1:
		return heads(ctx, tx, limit, 0, waits+" AND tenant = ? AND rank = ?", req.Sink, req.Tenants[0], rank)
	default:
		return turns(ctx, tx, req, rank, limit)
	}
	skip := max(0, req.Spread)
	found, err := heads(ctx, tx, limit, skip, waits+" AND rank = ?", req.Sink, rank)
	if err != nil || len(found) == limit || skip == 0 {
		return found, err
	}
	// Round the end: those before the spread.
	first, err := heads(ctx, tx, min(limit-len(found), skip), 0, waits+" AND rank = ?", req.Sink, rank)
	return append(found, slices.DeleteFunc(first, func(seq int64) bool { return slices.Contains(found, seq) })...), err
}

// heads are the first due jobs that a condition selects, in the order of an
// index.
func heads(ctx context.Context, tx *sql.Tx, limit, skip int, condition string, args ...any) (seqs []int64, err error) {
	err = each(ctx, tx, func(rows *sql.Rows) error {
		var seq int64
		err := rows.Scan(&seq)
		seqs = append(seqs, seq)
		return err
	}, "SELECT seq FROM outbox_jobs WHERE "+condition+" AND available_at <= "+sqlNow+" ORDER BY available_at, seq LIMIT ? OFFSET ?",
		append(args, limit, skip)...)
	return seqs, err
}

// turns takes the first jobs of all tenants before the second ones.
func turns(ctx context.Context, tx *sql.Tx, req core.ClaimRequest, rank, limit int) ([]int64, error) {
	queues := make([][]int64, len(req.Tenants))
	hungry := len(queues) // tenants that may have more than is known
	asked := make([]int, len(queues))
	for total := 0; total < limit && hungry > 0; {
		share := (limit-total)/hungry + 1
		hungry, total = 0, 0
		for i, tenant := range req.Tenants {
			if len(queues[i]) == asked[i] {
				asked[i] += share
				more, err := heads(ctx, tx, share, len(queues[i]), waits+" AND tenant = ? AND rank = ?", req.Sink, tenant, rank)
				if err != nil {
					return nil, err
				}
				queues[i] = append(queues[i], more...)
				if len(more) == share {
					hungry++
				}
			}
			total += len(queues[i])
		}
	}
	var seqs []int64
	for turn := 0; len(seqs) < limit; turn++ {
		before := len(seqs)
		for _, queue := range queues {
			if turn < len(queue) && len(seqs) < limit {
				seqs = append(seqs, queue[turn])
			}
		}
		if len(seqs) == before {
			break
		}
	}
	return seqs, nil
}

// lending is one claim: all its jobs have one token.
type lending struct {
	store *Store
	owner string
	lease time.Duration
	token int64
	// begun is before the database's clock is read.
	begun time.Time
}

func newLending(s *Store, owner string, lease time.Duration) lending {
	var random [8]byte
	_, _ = rand.Read(random[:])                               // never fails
	token := int64(binary.BigEndian.Uint64(random[:])>>1) | 1 //nolint:gosec // 63 bits, not 0
	return lending{store: s, owner: owner, lease: lease, token: token, begun: time.Now()}
}

// lend lends those of the jobs that are ready and match the condition, and
// returns them in the given order.
func (l lending) lend(ctx context.Context, tx *sql.Tx, seqs []int64, condition string, args ...any) ([]*core.Claimed, error) {
	if len(seqs) == 0 {
		return nil, nil
	}
	list, err := json.Marshal(seqs)
	if err != nil {
		return nil, err
	}
	got := make(map[int64]*core.Claimed, len(seqs))
	args = append([]any{l.token, l.owner, millis(l.lease), string(list)}, args...)
	err = each(ctx, tx, func(rows *sql.Rows) error {
		j := &storedJob{}
		if err := j.scan(rows, &j.Payload); err != nil {
			return err
		}
		got[j.seq] = l.store.claimed(ctx, j, l.begun.Add(l.lease))
		return nil
	}, `UPDATE outbox_jobs SET state = 'active', token = ?, owner = ?, claimed_at = `+sqlNow+`, lease_until = `+sqlNow+` + ?
		WHERE seq IN (SELECT value FROM json_each(?)) AND state = 'ready' AND (`+condition+`) RETURNING `+jobColumns+", payload", args...)
	if err != nil {
		return nil, err
	}
	claimed := make([]*core.Claimed, 0, len(got))
	for _, seq := range seqs {
		if c := got[seq]; c != nil {
			claimed = append(claimed, c)
		}
	}
	return claimed, nil
}
