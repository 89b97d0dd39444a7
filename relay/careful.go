package relay

import "fmt"

// An event may kill the process that delivers it. A term that follows two
// without progress is careful: it makes one call at a time, begins with single
// events, notes each of those first, and saves after each call. With each Save
// the calls double, and at their full size the term is a normal one. An event
// that was noted in so many terms and never got past is set aside.
const (
	fruitlessTerms = 2
	crashesToFail  = 5
)

// crashedBefore tells whether the process ended again and again while it
// delivered this event alone.
func (t *term) crashedBefore(s *slot) bool {
	return t.found.SuspectCount >= crashesToFail && t.found.SuspectID == s.entry.Event.ID
}

func (t *term) crashReason() string {
	return fmt.Sprintf("%d holders in a row ended while they delivered this event alone", t.found.SuspectCount)
}

// progressed is called after a Save that moved the position. The lock is held.
func (t *term) progressed() {
	if !t.careful {
		return
	}
	t.gate.widen()
	t.careful = t.gate.limit < t.gate.most
	t.work.Signal()
}
