package relay

import (
	"sync"
	"time"
)

const (
	// answerFresh is how long what the store counted is told again, however often
	// metrics are collected.
	answerFresh = 15 * time.Second
	// answerTimeout is how long the store's answers may hold up one collection.
	answerTimeout = 5 * time.Second
)

// answerBackoff is how long the store is left alone after it did not answer: a
// cursor that is about to be made soon has a lag, and a store that is away isn't
// asked at each collection.
var answerBackoff = Backoff{Initial: 500 * time.Millisecond, Max: answerFresh}

// answer remembers what the store answered last to one question. Its methods may
// be called by several goroutines at once.
type answer[T any] struct {
	mu    sync.Mutex
	next  time.Time // when to ask again
	fails int       // in a row
	last  T
}

// of asks, unless that was done lately, and tells whether the answer is known.
func (a *answer[T]) of(ask func() (T, error)) (T, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Now().Before(a.next) {
		return a.last, a.fails == 0
	}
	got, err := ask()
	if err != nil {
		a.fails++
		a.next = time.Now().Add(answerBackoff.nth(a.fails))
		return a.last, false
	}
	a.last, a.fails, a.next = got, 0, time.Now().Add(answerFresh)
	return got, true
}
