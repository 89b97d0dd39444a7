package smtp

import (
	"errors"
	"fmt"
	"net/textproto"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/gooutbox/outbox/core"
)

// answer is a server's reply.
type answer struct {
	code int
	// enhanced is the status code of RFC 3463, such as "4.7.1"; empty if there is
	// none.
	enhanced string
	text     string
}

func (a answer) String() string { return strings.TrimSpace(fmt.Sprintf("%d %s", a.code, a.text)) }

// maxAnswerBytes bounds what is kept of a reply.
const maxAnswerBytes = 300

var enhancedCode = regexp.MustCompile(`^([245]\.\d{1,3}\.\d{1,3})\b`)

// answerOf reads a reply out of an error of the client.
func answerOf(err error) (answer, bool) {
	e, ok := errors.AsType[*textproto.Error](err)
	if !ok {
		return answer{}, false
	}
	a := answer{code: e.Code, enhanced: enhancedCode.FindString(e.Msg)}
	a.text = strings.ToValidUTF8(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, e.Msg), "?")
	if len(a.text) > maxAnswerBytes {
		a.text = strings.ToValidUTF8(a.text[:maxAnswerBytes], "") + "…"
	}
	return a, true
}

// tidy is an error whose reply is short and on one line.
func tidy(err error) error {
	if a, ok := answerOf(err); ok {
		return fmt.Errorf("it answered %s", a)
	}
	return err
}

// isLost tells whether an error is the connection's and no reply.
func isLost(err error) bool {
	_, ok := answerOf(err)
	return !ok
}

// failure is why a command was not successful.
type failure struct {
	answer answer
	err    error
	// lost: there was no answer, or none that can be read.
	lost bool
	// forGood: it was not sent, and never can be.
	forGood bool
}

// failureOf reads an error of the client; nil is none.
func failureOf(err error) *failure {
	if err == nil {
		return nil
	}
	a, ok := answerOf(err)
	if !ok || a.code < 400 {
		return &failure{err: err, lost: true}
	}
	return &failure{answer: a, err: fmt.Errorf("the SMTP server answered %s", a)}
}

// ends tells whether the connection is of no use after it.
func (f *failure) ends() bool { return f != nil && (f.lost || f.answer.code == 421) }

// answered tells whether the server still listens.
func (f *failure) answered() bool { return f != nil && !f.ends() }

// stale tells whether a connection that was idle can't be used any more.
func (f *failure) stale() bool { return f != nil && !f.forGood && (f.ends() || f.answer.code == 503) }

// How long to wait where the server doesn't say.
const (
	greylistedFor = 5 * time.Minute
	throttledFor  = time.Minute
	// longestWait bounds what a server may ask for.
	longestWait = 6 * time.Hour
)

// result is what the failure means for a recipient; "" stands for all of the
// mail's.
func (f *failure) result(at phase, recipient string) core.Result {
	r := core.Result{Err: fmt.Errorf("sending by SMTP, at %s: %w", at, f.err)}
	switch {
	case f.forGood:
		r.Outcome = core.Rejected
	case f.lost && at == phaseDot:
		r.Outcome = core.Unknown
	case f.lost:
		r.Outcome = core.Unavailable
	default:
		f.classify(&r, at, recipient)
	}
	return r
}

func (f *failure) classify(r *core.Result, at phase, recipient string) {
	code, text := f.answer.code, strings.ToLower(f.answer.text)
	switch {
	case code == 421, code == 530, code == 534, code == 535, code == 538, code == 502, code == 503:
		r.Outcome = core.Unavailable
	case code >= 500:
		r.Outcome = core.Rejected
	case f.answer.enhanced == "4.5.3": // too many recipients of one mail
		r.Outcome = core.Refused
	case isGreylisted(text):
		r.Outcome, r.RetryAfter = core.Refused, waitOf(text, greylistedFor)
	case f.answer.enhanced == "4.7.28" || isThrottled(text):
		r.Outcome, r.RetryAfter = core.Throttled, waitOf(text, throttledFor)
		r.Throttles = core.PauseTarget{Scope: core.PauseSink}
		if at == phaseRcpt && recipient != "" {
			r.Throttles = core.PauseTarget{Scope: core.PauseDomain, Name: recipient[strings.LastIndexByte(recipient, '@')+1:]}
		}
	default:
		r.Outcome = core.Refused
	}
}

func isGreylisted(text string) bool {
	return containsAny(text, "greylist", "graylist", "grey list", "gray list", "greylisting")
}

func isThrottled(text string) bool {
	return containsAny(text, "rate limit", "ratelimit", "too many messages", "too many mails", "too many connections", "throttl", "sending too fast", "rate exceeded")
}

func containsAny(text string, words ...string) bool {
	for _, w := range words {
		if strings.Contains(text, w) {
			return true
		}
	}
	return false
}

var waitText = regexp.MustCompile(`(\d{1,5}) ?(seconds?|secs?|s|minutes?|mins?|m|hours?|h)\b`)

// waitOf reads how long to wait from what a server says in words.
func waitOf(text string, otherwise time.Duration) time.Duration {
	found := waitText.FindStringSubmatch(text)
	if found == nil {
		return otherwise
	}
	n, err := strconv.Atoi(found[1])
	if err != nil || n == 0 {
		return otherwise
	}
	unit := time.Second
	switch found[2][0] {
	case 'm':
		unit = time.Minute
	case 'h':
		unit = time.Hour
	}
	return min(time.Duration(n)*unit, longestWait)
}
