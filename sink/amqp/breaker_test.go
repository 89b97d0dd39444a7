package amqp

import (
	"encoding/binary"
	"testing"

	"github.com/gooutbox/outbox/internal/servicetest"
)

// method is a method of AMQP, by its class and its own number.
type method struct{ class, number uint16 }

// in tells whether a frame holds the method; 1 is a frame that has one.
func (m method) in(frame []byte) bool {
	return frame[0] == 1 && m == method{binary.BigEndian.Uint16(frame[7:]), binary.BigEndian.Uint16(frame[9:])}
}

// newBreaker reads AMQP 0-9-1: a header, then frames of seven bytes, which end
// with the size of what follows, that, and an end mark.
func newBreaker(t testing.TB, target string) *servicetest.Breaker {
	t.Helper()
	b := servicetest.NewBreaker(t, servicetest.Framing{Preface: 8, Head: 7, Size: func(head []byte) int {
		return 7 + int(binary.BigEndian.Uint32(head[3:])) + 1
	}})
	b.To(target)
	return b
}
