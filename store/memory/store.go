package memory

import (
	"math"
	"sync"
	"time"

	"github.com/gooutbox/outbox/core"
)

// Config configures a Store. The zero value is ready for use.
type Config struct {
	// Source names the log. Defaults to "/outbox/memory/outbox".
	Source string
	// Now is the store's clock: it decides when a lease has run out, and dates
	// events. Defaults to time.Now.
	Now func() time.Time
	// Idle is how long a Read waits before it returns an empty batch. Defaults
	// to 5 seconds.
	Idle time.Duration
	// MaxEventBytes is the largest Event.Size that Append takes. Defaults to
	// core.DefaultMaxEventBytes.
	MaxEventBytes int
	// CompletedRetention is how long a completed job is kept, and its DedupKey
	// makes another one a duplicate. Defaults to
	// core.DefaultCompletedRetention.
	CompletedRetention time.Duration
	// FailedRetention is how long a failed job that was enqueued is kept.
	// Defaults to core.DefaultFailedRetention.
	FailedRetention time.Duration
	// Fault, where not nil, is called before each operation takes effect, with
	// one of the Op constants, and without any lock held, so it may wait. The
	// operation fails with the error that it returns and changes nothing.
	Fault func(op string) error
	// Lost, where not nil, is called after an operation took effect. The
	// operation reports the error that it returns all the same, as if the
	// answer had been lost on its way.
	Lost func(op string) error
}

// Operations that Config.Fault and Config.Lost are told.
const (
	OpAppend  = "append"
	OpCommit  = "commit"
	OpAcquire = "acquire"
	OpRead    = "read"
	OpSave    = "save"
	OpRenew   = "renew"
	OpSuspect = "suspect"
	OpPark    = "park"
	OpRelease = "release"
	OpClean   = "clean"
	OpLag     = "lag"
)

// Store is a core.Log, a core.Queue and a core.Admin in memory. Its methods
// may be called by several goroutines at once.
type Store struct {
	cfg Config

	mu sync.Mutex
	// clock rises with every commit and every acquisition. It is the time of
	// positions and the source of fences.
	clock    uint64
	log      []*document // in commit order
	ids      map[string]*document
	cursors  map[string]*cursorState
	counters map[string]*counter
	queue    queue
	// changed is closed, and replaced, when the log grew or a cursor changed
	// hands: what a waiting Read waits for.
	changed chan struct{}
}

var _ core.Log = (*Store)(nil)

// New returns an empty store.
func New(cfg Config) *Store {
	if cfg.Source == "" {
		cfg.Source = "/outbox/memory/outbox"
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Idle <= 0 {
		cfg.Idle = 5 * time.Second
	}
	if cfg.CompletedRetention <= 0 {
		cfg.CompletedRetention = core.DefaultCompletedRetention
	}
	if cfg.FailedRetention <= 0 {
		cfg.FailedRetention = core.DefaultFailedRetention
	}
	return &Store{
		cfg:      cfg,
		ids:      map[string]*document{},
		cursors:  map[string]*cursorState{},
		counters: map[string]*counter{},
		queue:    newQueue(),
		changed:  make(chan struct{}),
	}
}

// Source is Config.Source.
func (s *Store) Source() string { return s.cfg.Source }

// wake lets every waiting Read look again. The caller holds mu.
func (s *Store) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// end is a place after everything committed so far and before everything that
// is committed later. The caller holds mu.
func (s *Store) end() core.Position {
	return core.Position{Time: s.clock, Ordinal: math.MaxUint64}
}

func (s *Store) fault(op string) error {
	if s.cfg.Fault == nil {
		return nil
	}
	return s.cfg.Fault(op)
}

func (s *Store) lost(op string) error {
	if s.cfg.Lost == nil {
		return nil
	}
	return s.cfg.Lost(op)
}
