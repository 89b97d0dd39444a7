package relay

import (
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// trouble tells people once when a thing begins to fail and once when all of it
// works again. Several operations may fail beside each other; another one that
// begins to fail is told at most once in troubleQuiet.
type trouble struct {
	log        *slog.Logger
	begin, end string // the lines to log

	any     atomic.Bool // something fails: so that ok costs nothing while all is well
	mu      sync.Mutex
	failing map[string]bool // whether a line told it
	spoke   bool            // a line told that something fails, and none yet that all works
	since   time.Time
	told    time.Time // when the last line was logged
	last    error
}

const troubleQuiet = time.Minute

// failed tells that the operation failed. attrs go with the line if it is the
// first.
func (t *trouble) failed(op string, err error, attrs ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failing == nil {
		t.failing = map[string]bool{}
	}
	now := time.Now()
	first := !t.spoke
	if first {
		t.since, t.spoke = now, true
		t.any.Store(true)
	}
	told := t.failing[op]
	if first || !told && now.Sub(t.told) >= troubleQuiet {
		if !first {
			attrs = append(attrs, "failing", len(t.failing))
		}
		t.log.Warn(t.begin, append([]any{"error", err}, attrs...)...)
		told, t.told = true, now
	}
	t.failing[op] = told
	t.last = err
}

// also notes without a word that the operation doesn't work, so that not all does
// before it is ok.
func (t *trouble) also(op string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failing == nil {
		t.failing = map[string]bool{}
	}
	if _, there := t.failing[op]; !there {
		t.failing[op] = false
		t.any.Store(true)
	}
}

// ok tells that the operation works.
func (t *trouble) ok(op string) {
	if !t.any.Load() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, was := t.failing[op]; !was {
		return
	}
	delete(t.failing, op)
	if len(t.failing) == 0 {
		if t.spoke {
			t.log.Info(t.end, "after", time.Since(t.since).Round(time.Millisecond))
		}
		t.any.Store(false)
		t.since, t.last, t.spoke = time.Time{}, nil, false
	}
}

// collapse is for when the operations that may be failing are not tried again
// soon: the next success or failure of op speaks for all of them.
func (t *trouble) collapse(op string) {
	if !t.any.Load() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.failing) > 0 {
		clear(t.failing)
		t.failing[op] = true
	}
}

// reset forgets what fails, without a word: it is not known any more.
func (t *trouble) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.failing)
	t.any.Store(false)
	t.since, t.last, t.spoke = time.Time{}, nil, false
}

// now returns what fails at present, and since when.
func (t *trouble) now() (reason string, since time.Time) {
	if !t.any.Load() {
		return "", time.Time{}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last != nil {
		reason = t.last.Error()
	}
	return reason, t.since
}

// short cuts a name of somebody else's for a line of the log.
func short(name string) string {
	if len(name) <= maxShort {
		return name
	}
	return strings.ToValidUTF8(name[:maxShort], "") + "…"
}

const maxShort = 256
