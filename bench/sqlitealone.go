package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	sqlitestore "github.com/gooutbox/outbox/store/sqlite"
)

const (
	// readSize is how many events one read takes, and one saved position covers,
	// as in a relay.
	readSize = 500
	// claimSize is how many jobs one claim takes, as in a relay.
	claimSize = 500

	sqliteNow = "CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)"
)

// aloneOn runs the statements of a store without the store, on one connection,
// and returns how long they took.
func aloneOn(ctx context.Context, path string, run func(ctx context.Context, db *sql.DB) error) (float64, error) {
	db, err := sql.Open("sqlite", sqlitestore.DSN(path))
	if err != nil {
		return 0, err
	}
	db.SetMaxOpenConns(1)
	started := time.Now()
	err = run(ctx, db)
	return time.Since(started).Seconds(), errors.Join(err, db.Close())
}

// readAlone reads the log in batches, and saves a position after each.
func (b *sqliteBench) readAlone(ctx context.Context) (float64, error) {
	s, err := b.fillLog(ctx)
	if err != nil {
		return 0, err
	}
	if err := s.Close(); err != nil {
		return 0, err
	}
	return aloneOn(ctx, s.Path(), func(ctx context.Context, db *sql.DB) error {
		_, err := db.ExecContext(ctx, `INSERT INTO outbox_cursors (name, owner, sink, fence, lease_until, revision, marking, created_at, begin_after,
			include_published) VALUES ('alone', 'bench', '', 1, 0, 0, 0, 0, 0, 1)`)
		for last, done := int64(0), 0; err == nil && done < b.events; {
			var n int
			if last, n, err = readBatch(ctx, db, last); err != nil {
				return err
			}
			if n == 0 {
				return fmt.Errorf("read %d of %d events", done, b.events)
			}
			done += n
			_, err = db.ExecContext(ctx, `UPDATE outbox_cursors SET lease_until = `+sqliteNow+` + 15000, revision = revision + 1, position = ?
				WHERE name = 'alone' AND owner = 'bench' AND fence = 1`, last)
		}
		return err
	})
}

func readBatch(ctx context.Context, db *sql.DB, after int64) (last int64, n int, err error) {
	rows, err := db.QueryContext(ctx, `SELECT id, event_id, aggregate, aggregate_id, event_type, content_type, headers, tenant, occurred_at, correlation_id, payload
		FROM outbox WHERE id > ? ORDER BY id LIMIT ?`, after, readSize)
	if err != nil {
		return after, 0, err
	}
	defer rows.Close() //nolint:errcheck // read only
	var texts [8]string
	var occurred int64
	var payload []byte
	for last = after; rows.Next(); n++ {
		err := rows.Scan(&last, &texts[0], &texts[1], &texts[2], &texts[3], &texts[4], &texts[5], &texts[6], &occurred, &texts[7], &payload)
		if err != nil {
			return last, n, err
		}
	}
	return last, n, rows.Err()
}

// claimAlone claims jobs and settles them, so many in a transaction. It does
// fewer of them where each has transactions of its own.
func (b *sqliteBench) claimAlone(ctx context.Context, size int) (float64, error) {
	jobs := b.jobs
	if size == 1 {
		jobs = b.plainJobs()
	}
	s, err := b.fillQueue(ctx, jobs)
	if err != nil {
		return 0, err
	}
	if err := s.Close(); err != nil {
		return 0, err
	}
	return aloneOn(ctx, s.Path(), func(ctx context.Context, db *sql.DB) error {
		for done := 0; done < jobs; {
			seqs, err := claimSome(ctx, db, size)
			if err != nil || len(seqs) == 0 {
				return errors.Join(err, fmt.Errorf("claimed %d of %d jobs", done, jobs))
			}
			done += len(seqs)
			if err := settleAll(ctx, db, seqs); err != nil {
				return err
			}
		}
		return nil
	})
}

func claimSome(ctx context.Context, db *sql.DB, size int) (seqs []int64, err error) {
	rows, err := db.QueryContext(ctx, `UPDATE outbox_jobs SET state = 'active', token = 1, owner = 'bench', claimed_at = `+sqliteNow+`, lease_until = `+sqliteNow+` + 60000
		WHERE seq IN (SELECT seq FROM outbox_jobs WHERE state = 'ready' AND rank IS NOT NULL AND sink = ? AND rank = 1 AND available_at <= `+sqliteNow+`
			ORDER BY available_at, seq LIMIT ?) RETURNING seq, id, event_id, aggregate_id, event_type, headers, payload`, queueSink, size)
	if err != nil {
		return nil, err
	}
	defer rows.Close() //nolint:errcheck // the rows are read to their end
	var texts [5]string
	var payload []byte
	for rows.Next() {
		var seq int64
		if err := rows.Scan(&seq, &texts[0], &texts[1], &texts[2], &texts[3], &texts[4], &payload); err != nil {
			return nil, err
		}
		seqs = append(seqs, seq)
	}
	return seqs, rows.Err()
}

func settleAll(ctx context.Context, db *sql.DB, seqs []int64) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after a commit there is nothing to roll back
	settle, err := tx.PrepareContext(ctx, `UPDATE outbox_jobs SET lease_until = NULL, owner = '', attempts = attempts + 1, state = 'completed',
		finished_at = `+sqliteNow+`, expire_at = `+sqliteNow+` + 86400000, result = '', payload = NULL WHERE seq = ? AND token = 1 AND state = 'active'`)
	if err != nil {
		return err
	}
	defer settle.Close() //nolint:errcheck // it ends with the transaction
	for _, seq := range seqs {
		if _, err := settle.ExecContext(ctx, seq); err != nil {
			return err
		}
	}
	return tx.Commit()
}
