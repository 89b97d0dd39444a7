package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/gooutbox/outbox/core"
)

// Store is a core.Log, a core.Queue and a core.Admin in one SQLite file. Its
// methods may be called by several goroutines at once, and several processes may
// have a Store on the same file. Those of one process share a Store: its writes
// then wait for each other in order, instead of asking again and again whether
// the file is free.
type Store struct {
	path string
	cfg  Config
	// writes has one connection. Whoever has it is this process's writer.
	writes *sql.DB
	reads  *sql.DB
	bell   *bell
	// now is the clock of this process: it dates events of producers, and
	// nothing else.
	now     func() time.Time
	metrics metrics
	// steps are migrations; their number is the version that is known.
	steps [][]string

	mu sync.Mutex
	// ready tells that the layout was found to be known, and id names this
	// outbox.
	ready bool
	id    string
	// running are the transactions that InTransaction began.
	running map[*sql.Tx]*transaction
}

var (
	_ core.Log   = (*Store)(nil)
	_ core.Queue = (*Store)(nil)
	_ core.Admin = (*Store)(nil)
)

// readers is how many reads run at once, beside the one connection that looks
// for changes.
const readers = 4

// askAgain is how long the writer lets SQLite wait for another process before it
// asks again itself.
const askAgain = 20 * time.Millisecond

// New makes a Store on the file at path. It opens nothing yet. The file and its
// tables are made by Migrate, and by whoever first acquires a cursor or claims
// jobs; Close the store at the end.
func New(path string, cfg Config) (*Store, error) {
	switch {
	case path == "":
		return nil, errors.New("opening the SQLite store: the path is empty")
	case strings.HasPrefix(path, ":memory:"), strings.HasPrefix(path, "file:"):
		return nil, errors.New("opening the SQLite store: want the path of a file, no URI and no database in memory: several connections share it")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("opening the SQLite store: %w", err)
	}
	cfg, err = cfg.withDefaults("/outbox/" + filepath.Base(path) + "/outbox")
	if err != nil {
		return nil, err
	}
	s := &Store{path: path, cfg: cfg, now: time.Now, steps: migrations, running: map[*sql.Tx]*transaction{}}
	if s.metrics, err = newMetrics(cfg.MeterProvider, cfg.Source); err != nil {
		return nil, err
	}
	if s.writes, err = sql.Open("sqlite", dsn(path, min(cfg.BusyTimeout, askAgain))); err != nil {
		return nil, fmt.Errorf("opening the SQLite store: %w", err)
	}
	if s.reads, err = sql.Open("sqlite", readDSN(path, cfg.BusyTimeout)); err != nil {
		return nil, errors.Join(fmt.Errorf("opening the SQLite store: %w", err), s.writes.Close())
	}
	s.writes.SetMaxOpenConns(1)
	s.reads.SetMaxOpenConns(readers + 1)
	s.reads.SetMaxIdleConns(readers + 1)
	s.bell = newBell(s.reads, cfg.PollInterval)
	return s, nil
}

// Close ends the store's connections. Calls that are under way fail. It may be
// called more than once.
func (s *Store) Close() error {
	s.bell.close()
	if err := errors.Join(s.writes.Close(), s.reads.Close()); err != nil {
		return fmt.Errorf("closing the SQLite store: %w", err)
	}
	return nil
}

// Path is that of the file.
func (s *Store) Path() string { return s.path }

// Source is Config.Source.
func (s *Store) Source() string { return s.cfg.Source }

// Notify tells readers and workers of this store that something was committed by
// another connection of this process: call it after the Commit of a transaction
// of your own. Without it they find out within Config.PollInterval, as those of
// other processes do. InTransaction calls it.
func (s *Store) Notify() { s.bell.ring() }

// Ping returns an error if the file can't be read before ctx ends.
func (s *Store) Ping(ctx context.Context) error {
	if err := s.exists(ctx); err != nil && !errors.Is(err, core.ErrNoOutbox) {
		return fmt.Errorf("reading %s: %w", s.path, err)
	}
	return nil
}
