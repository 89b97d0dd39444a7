package relay

import (
	"time"

	"github.com/gooutbox/outbox/core"
)

// none is the index of no entry.
const none = ^uint64(0)

// slot is an entry of the window and what is known of its delivery.
type slot struct {
	entry core.Entry
	key   *key
	next  uint64 // the key's next entry, or none

	settled bool
	tries
}

// tries is what a term knows of the deliveries of one event.
type tries struct {
	// redelivered: an earlier try may have reached the destination.
	redelivered bool
	// alone: it is sent in a call of its own, to see whether it is the cause.
	alone bool
	// asked tells that a call ended without telling anything about this event,
	// and passes how many calls had delivered something by then.
	asked  bool
	passes uint64

	attempts int // how often it was refused
	unknowns int // how often its outcome was unknown
	suspects int // how often it alone did not get through while others did
	naks     int // how often it was not attempted although others were
}

// window keeps the entries beyond the saved position in the order of the log:
// a ring that grows to its limit. Entries are named by their running number.
//
//	saved <= settled <= read
//
// Below saved all is done; from saved to settled all are settled and wait for
// a Save; at settled stands the first that isn't.
type window struct {
	slots                []slot
	limit                int
	saved, settled, read uint64
	bytes                int // of entries that are not settled
}

// at returns the slot of entry i, which is valid until the next push.
func (w *window) at(i uint64) *slot { return &w.slots[i%uint64(len(w.slots))] }

// count is the number of entries beyond the saved position.
func (w *window) count() int { return int(w.read - w.saved) }

// free is how many more entries fit.
func (w *window) free() int { return w.limit - w.count() }

// push adds the entry, for which there must be room, and returns its number.
func (w *window) push(e *core.Entry) uint64 {
	if w.count() == len(w.slots) {
		w.grow()
	}
	i := w.read
	w.read++
	*w.at(i) = slot{entry: *e, next: none}
	w.bytes += e.Size
	return i
}

func (w *window) grow() {
	old := *w
	size := min(max(2*len(old.slots), 256), w.limit)
	if size <= len(old.slots) {
		size = 2 * len(old.slots) // a log that returned more than it was asked for
	}
	w.slots = make([]slot, size)
	for i := old.saved; i < old.read; i++ {
		*w.at(i) = *old.at(i)
	}
}

// settle marks the entry as done and lets its event go.
func (w *window) settle(i uint64) {
	s := w.at(i)
	s.settled, s.key = true, nil
	w.bytes -= s.entry.Size
	s.entry.Event, s.entry.Err = core.Event{}, nil
}

// advance moves settled on and returns how many entries wait for a Save.
func (w *window) advance() int {
	for w.settled < w.read && w.at(w.settled).settled {
		w.settled++
	}
	return int(w.settled - w.saved)
}

// marks returns those of the entries that wait for a Save, and when the last of
// them was committed.
func (w *window) marks() (marks []core.Mark, committed time.Time) {
	marks = make([]core.Mark, 0, w.settled-w.saved)
	for i := w.saved; i < w.settled; i++ {
		s := w.at(i)
		marks = append(marks, s.entry.Mark)
		committed = s.entry.CommittedAt
	}
	return marks, committed
}

// forget drops the first n entries, which are saved.
func (w *window) forget(n int) {
	for range n {
		w.at(w.saved).entry.Mark = nil
		w.saved++
	}
}
