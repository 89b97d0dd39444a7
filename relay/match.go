package relay

import (
	"slices"
	"strings"

	"github.com/gooutbox/outbox/core"
)

// Match selects events. An empty list matches any; with both lists an event
// must match both. An entry is the whole name, or the beginning of it followed
// by a star, such as "order.*".
type Match struct {
	// Aggregates are names that Event.Aggregate may have. Defaults to any.
	Aggregates []string
	// Types are names that Event.Type may have. Defaults to any.
	Types []string
}

// Matches tells whether m selects e.
func (m *Match) Matches(e *core.Event) bool {
	return matchesAny(m.Aggregates, e.Aggregate) && matchesAny(m.Types, e.Type)
}

func matchesAny(patterns []string, name string) bool {
	if len(patterns) == 0 {
		return true
	}
	for _, p := range patterns {
		if begin, star := strings.CutSuffix(p, "*"); p == name || star && strings.HasPrefix(name, begin) {
			return true
		}
	}
	return false
}

func (m *Match) check(add func(string, ...any), at string) {
	checkPatterns(add, at+".Match.Aggregates", m.Aggregates)
	checkPatterns(add, at+".Match.Types", m.Types)
}

func checkPatterns(add func(string, ...any), at string, patterns []string) {
	for i, p := range patterns {
		if p == "" {
			add("%s[%d] is empty: it would match nothing", at, i)
		}
		if star := strings.IndexByte(p, '*'); star >= 0 && star != len(p)-1 {
			add("%s[%d] is %q: a star may only stand at the end", at, i, p)
		}
	}
}

func (m *Match) clone() Match {
	return Match{Aggregates: slices.Clone(m.Aggregates), Types: slices.Clone(m.Types)}
}
