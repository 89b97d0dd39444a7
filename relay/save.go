package relay

import (
	"context"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/crash"
)

// When the position is saved: after saveEvents settled events, or when one of
// them has waited for saveDelay; and once in saveIdle while nothing happens, so
// that the cursor's place in the log doesn't age out.
const (
	saveEvents = 500
	saveDelay  = 100 * time.Millisecond
	saveIdle   = time.Minute
)

// saver is what the goroutine that saves needs to know. It is guarded by the
// term's lock.
type saver struct {
	delay, idle        *time.Timer
	armed              bool // delay is running
	due, idleDue, soon bool
	// reached may be saved when everything read is settled.
	reached core.Mark
}

func (t *term) startTimers() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.saver.delay = time.AfterFunc(saveDelay, func() { t.saveNow(&t.saver.due) })
	t.saver.delay.Stop()
	t.saver.idle = time.AfterFunc(saveIdle, func() { t.saveNow(&t.saver.idleDue) })
	t.alarm = time.AfterFunc(time.Hour, t.ring)
	t.alarm.Stop()
}

func (t *term) stopTimers() {
	t.saver.delay.Stop()
	t.saver.idle.Stop()
	t.alarm.Stop()
}

func (t *term) saveNow(due *bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	*due = true
	t.dirty.Signal()
}

// advance moves the settled prefix on and sees that it is saved. The lock is
// held.
func (t *term) advance() {
	waiting := t.win.advance()
	switch {
	case waiting == 0:
		if t.saver.soon && t.idle() {
			t.dirty.Signal()
		}
	case waiting >= t.saveAfter():
		t.dirty.Signal()
	case !t.saver.armed:
		t.saver.armed = true
		t.saver.delay.Reset(saveDelay)
	}
}

// saveAfter is how many settled events are worth a Save.
func (t *term) saveAfter() int {
	if t.careful {
		return 1
	}
	return min(saveEvents, max(t.route.cfg.Window/4, 1))
}

// idle tells whether everything read is settled and saved. The lock is held.
func (t *term) idle() bool { return t.win.saved == t.win.read && t.saver.reached != nil }

// saving is what one Save writes.
type saving struct {
	marks     []core.Mark
	committed time.Time // when the last of the events was committed
	reached   bool      // the mark is that of a place behind all events
}

// save saves the position until the term is over or finished, one Save at a
// time.
func (t *term) save() {
	for {
		next, ok := t.nextSaving()
		if !ok {
			return
		}
		crash.Here("relay.saving")
		if !t.persist(opSave, func(ctx context.Context) error { return t.cursor.Save(ctx, next.marks) }) {
			return
		}
		crash.Here("relay.saved")
		t.saved(next)
	}
}

// nextSaving waits for something to save. It returns false when the term is
// over, or is finished and all is saved.
func (t *term) nextSaving() (saving, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := &t.saver
	for {
		waiting := int(t.win.settled - t.win.saved)
		switch {
		case t.over:
			return saving{}, false
		case waiting > 0 && (waiting >= t.saveAfter() || s.due || t.draining):
			marks, committed := t.win.marks()
			return saving{marks: marks, committed: committed}, true
		case t.idle() && (s.idleDue || s.soon):
			next := saving{marks: []core.Mark{s.reached}, reached: true}
			s.reached, s.soon = nil, false
			return next, true
		case t.finishing && t.parking == 0:
			return saving{}, false
		}
		t.dirty.Wait()
	}
}

// saved notes that a Save was done.
func (t *term) saved(done saving) {
	t.route.moved(done.marks[len(done.marks)-1].Position(), done.committed)
	t.mu.Lock()
	defer t.mu.Unlock()
	s := &t.saver
	s.due, s.armed, s.idleDue = false, false, false
	s.delay.Stop()
	s.idle.Reset(saveIdle)
	if !done.reached {
		t.win.forget(len(done.marks))
		t.progressed()
	}
	t.advance()
	t.room.Signal()
}
