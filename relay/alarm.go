package relay

import "time"

// setAlarm sees that a lane is woken when the next wait is over, be it a key's
// or the sink's. The lock is held.
func (t *term) setAlarm(now time.Time) {
	var next time.Time
	if len(t.keys.waiting) > 0 {
		next = t.keys.waiting[0].wait.until
	}
	if u := t.gate.until; u.After(now) && (next.IsZero() || u.Before(next)) {
		next = u
	}
	if len(t.lines.due) > 0 {
		if d := t.lines.due[0].due; d.After(now) && (next.IsZero() || d.Before(next)) {
			next = d
		}
	}
	if next.IsZero() || next.Equal(t.alarmAt) {
		return
	}
	t.alarmAt = next
	t.alarm.Reset(next.Sub(now))
}

// ring is called when a wait is over.
func (t *term) ring() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return
	}
	now := time.Now()
	t.alarmAt = time.Time{}
	t.keys.due(now)
	t.work.Signal()
	t.setAlarm(now)
}
