package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/store/storetest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, storetest.Harness{
		New: func(t *testing.T) storetest.Store {
			s := suiteStore{newStore(t, filepath.Join(t.TempDir(), "shop.db"), Config{}), &atomic.Bool{}}
			require.NoError(t, run(t.Context(), s.Store, "CREATE TABLE counters (key TEXT PRIMARY KEY, n INTEGER)"))
			return s
		},
		Second: func(t *testing.T, s storetest.Store) storetest.Store { return another(t, s, 0) },
		Count: func(ctx context.Context, _ storetest.Store, key string) (n int64, err error) {
			err = transactionOf(ctx).QueryRowContext(ctx,
				"INSERT INTO counters VALUES (?, 1) ON CONFLICT (key) DO UPDATE SET n = n + 1 RETURNING n", key).Scan(&n)
			return n, err
		},
		Put:    suitePut,
		Failed: suiteFailed,
		// The place of a cursor is an id: there is nothing else to lose.
		LoseToken: func(context.Context, storetest.Store, string) error { return nil },
		BreakRead: func(ctx context.Context, s storetest.Store) error { return breakRead(ctx, s.(suiteStore)) },
		Queue:     func(s storetest.Store) storetest.Queue { return s.(suiteStore) },
		Admin:     func(s storetest.Store) core.Admin { return s.(suiteStore) },
		Elapse:    suiteElapse,
		Skewed:    func(t *testing.T, s storetest.Store, d time.Duration) storetest.Store { return another(t, s, d) },
		PutJob: func(ctx context.Context, s storetest.Store, sink string) error {
			return unchecked(ctx, s.(suiteStore).Store, "INSERT INTO outbox_jobs (sink, event_type, payload) VALUES (?, '', '{}')", sink)
		},
		Traits:  storetest.Traits{OneWriter: true},
		Timeout: 5 * time.Minute,
		Lease:   500 * time.Millisecond,
	})
}

// newStore makes a store with its tables, which is closed when the test ends. It
// waits less than one that isn't tested.
func newStore(t testing.TB, path string, cfg Config) *Store {
	t.Helper()
	cfg.PollInterval = orDefault(cfg.PollInterval, 5*time.Millisecond)
	cfg.ReadWait = orDefault(cfg.ReadWait, 100*time.Millisecond)
	s, err := New(path, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Migrate(t.Context()))
	return s
}

// another is a store of another process, whose own clock is ahead by d.
func another(t *testing.T, s storetest.Store, d time.Duration) suiteStore {
	other := newStore(t, s.(suiteStore).path, Config{})
	other.now = func() time.Time { return time.Now().Add(d) }
	return suiteStore{other, &atomic.Bool{}}
}

// suiteStore carries the transaction in the context, as the suite wants it.
type suiteStore struct {
	*Store
	// broken: the next Read fails.
	broken *atomic.Bool
}

type transactionKey struct{}

func transactionOf(ctx context.Context) *sql.Tx {
	tx, _ := ctx.Value(transactionKey{}).(*sql.Tx)
	return tx
}

func (s suiteStore) InTransaction(ctx context.Context, fn func(ctx context.Context) error) error {
	return s.Store.InTransaction(ctx, func(tx *sql.Tx) error { return fn(context.WithValue(ctx, transactionKey{}, tx)) })
}

func (s suiteStore) Append(ctx context.Context, events ...core.Event) error {
	return s.Store.Append(ctx, transactionOf(ctx), events...)
}

func (s suiteStore) Enqueue(ctx context.Context, jobs ...core.Job) ([]core.Receipt, error) {
	return s.Store.Enqueue(ctx, transactionOf(ctx), jobs...)
}

// unchecked writes what the tables' own checks refuse.
func unchecked(ctx context.Context, s *Store, query string, args ...any) error {
	db, err := sql.Open("sqlite", DSN(s.path)+"&_pragma=ignore_check_constraints(1)")
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, query, args...)
	return errors.Join(err, db.Close())
}

// run runs statements in one transaction of the store's.
func run(ctx context.Context, s *Store, query string, args ...any) error {
	return s.write(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, query, args...)
		return err
	})
}

func suitePut(ctx context.Context, store storetest.Store, docs ...storetest.Document) error {
	s := store.(suiteStore).Store
	for _, d := range docs {
		written := time.Now().Add(-d.Age)
		if d.Event.OccurredAt.IsZero() {
			d.Event.OccurredAt = written
		}
		stored, err := s.encode(ctx, d.Event)
		if err != nil {
			return err
		}
		var published any
		if d.Published {
			published = time.Now().UnixMilli()
		}
		query, args := "INSERT INTO outbox ("+eventColumns+", payload, written_at, published_at) VALUES ("+places(16)+")",
			append(stored.values(), stored.Payload, written.UnixMilli(), published)
		if d.Undecodable {
			query, args = "INSERT INTO outbox (event_id, aggregate_id, event_type, payload) VALUES (?, '', '', '')", []any{d.Event.ID}
		}
		if err := unchecked(ctx, s, query, args...); err != nil {
			return err
		}
	}
	return nil
}

func suiteFailed(ctx context.Context, store storetest.Store, cursor string) ([]storetest.Failed, error) {
	s := store.(suiteStore).Store
	var failed []storetest.Failed
	err := each(ctx, s.reads, func(rows *sql.Rows) error {
		j := &storedJob{}
		if err := j.scan(rows, &j.Payload); err != nil {
			return err
		}
		_ = s.decode(ctx, &j.storedEvent, true) // only the id of one that can't be is looked at
		failed = append(failed, storetest.Failed{Event: j.Event, Sink: j.sink, Attempts: j.attempts, Failure: j.failure})
		return nil
	}, "SELECT "+jobColumns+", payload FROM outbox_jobs WHERE cursor = ? AND state = 'failed'", cursor)
	return failed, err
}

// breakRead takes a table away, so that a Read that waits fails at once and any
// other when it looks next. That Read brings it back.
func breakRead(ctx context.Context, s suiteStore) error {
	if err := run(ctx, s.Store, "ALTER TABLE outbox_cursors RENAME TO outbox_cursors_away"); err != nil {
		return err
	}
	s.broken.Store(true)
	s.Notify()
	return nil
}

func (s suiteStore) Acquire(ctx context.Context, req core.AcquireRequest) (core.Cursor, error) {
	c, err := s.Store.Acquire(ctx, req)
	if err != nil {
		return nil, err
	}
	return suiteCursor{c, s}, nil
}

type suiteCursor struct {
	core.Cursor
	store suiteStore
}

func (c suiteCursor) Read(ctx context.Context, limit core.ReadLimit) (core.Batch, error) {
	batch, err := c.Cursor.Read(ctx, limit)
	if err != nil && c.store.broken.CompareAndSwap(true, false) {
		err = errors.Join(err, run(ctx, c.store.Store, "ALTER TABLE outbox_cursors_away RENAME TO outbox_cursors"))
	}
	return batch, err
}

// suiteElapse moves what the queue keeps of time back. Jobs that were due from
// the beginning stay so.
func suiteElapse(ctx context.Context, store storetest.Store, d time.Duration) error {
	s := store.(suiteStore).Store
	return run(ctx, s, `UPDATE outbox_jobs SET enqueued_at = enqueued_at - ?1, claimed_at = claimed_at - ?1,
		available_at = CASE available_at WHEN 0 THEN 0 ELSE available_at - ?1 END, lease_until = lease_until - ?1,
		failed_at = failed_at - ?1, finished_at = finished_at - ?1, expire_at = expire_at - ?1;
		UPDATE outbox_pauses SET paused_until = paused_until - ?1`, d.Milliseconds())
}
