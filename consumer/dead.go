package consumer

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gooutbox/outbox/core"
)

// Headers that a dead letter has beside those of the message that it was. They
// have these names on every broker and in every form.
const (
	// DeadReason is a sentence.
	DeadReason = "outboxdeadreason"
	// DeadCode is one of core's codes of failures.
	DeadCode = "outboxdeadcode"
	// DeadAttempts is how often the handler was tried, decimal.
	DeadAttempts = "outboxdeadattempts"
	// DeadFrom is where the message lay: topic/partition/offset, or the queue.
	DeadFrom = "outboxdeadfrom"
	// DeadConsumer is the name of the consumer that gave it up.
	DeadConsumer = "outboxdeadconsumer"
	// DeadAt is when, RFC 3339 in UTC, by the consumer's clock.
	DeadAt = "outboxdeadat"
)

var deadNames = []string{DeadReason, DeadCode, DeadAttempts, DeadFrom, DeadConsumer, DeadAt}

func isDeadHeader(name string) bool { return slices.Contains(deadNames, name) }

// Death is why a message is given up.
type Death struct {
	core.Failure
	// Attempts is how often the handler was tried.
	Attempts int
	// Err is what the last try returned.
	Err error
}

// Headers are those of a dead letter, the reason first: those of the message,
// which are left alone, without what an earlier death wrote, and those of this
// one.
func (d Death) Headers(message []Header, from, consumer string, at time.Time) []Header {
	out := slices.DeleteFunc(slices.Clone(message), func(h Header) bool { return isDeadHeader(h.Name) })
	return append([]Header{
		{Name: DeadReason, Value: d.Reason},
		{Name: DeadCode, Value: d.Code},
		{Name: DeadAttempts, Value: strconv.Itoa(d.Attempts)},
		{Name: DeadFrom, Value: from},
		{Name: DeadConsumer, Value: consumer},
		{Name: DeadAt, Value: at.UTC().Format(time.RFC3339)},
	}, out...)
}

// deathOf makes one, with a reason that fits in a header of any broker: UTF-8
// without control characters, cut to core.MaxReasonBytes, never empty.
func deathOf(code string, attempts int, err error) *Death {
	reason := strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 || r == 0xfffe || r == 0xffff {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(err.Error(), "?"))
	if len(reason) > core.MaxReasonBytes {
		reason = strings.ToValidUTF8(reason[:core.MaxReasonBytes], "")
	}
	if reason == "" {
		reason = code
	}
	return &Death{Failure: core.Failure{Code: code, Reason: reason}, Attempts: attempts, Err: err}
}

// Undecodable is the death of a message that Decode refused.
func Undecodable(err error) *Death { return deathOf(core.CodeUndecodable, 0, err) }

// Crashed is the death of a message that was delivered again and again without
// an end: what handles it may end the process each time.
func Crashed(deliveries int) *Death {
	return deathOf(core.CodeCrashed, 0, &CrashedError{Deliveries: deliveries})
}

// CrashedError is the reason of Crashed.
type CrashedError struct{ Deliveries int }

func (e *CrashedError) Error() string {
	return "was delivered " + strconv.Itoa(e.Deliveries) + " times and never acknowledged: its handler may end the process"
}
