package config

import (
	"fmt"
	"slices"
	"strings"
)

// Problem is one thing that is wrong in a file.
type Problem struct {
	// Path is where, such as "sinks.events.topic"; empty for the whole file.
	Path string
	// Line counts from 1; 0 if it isn't known.
	Line int
	// Text says what is wrong and what would be right. It holds no value that
	// came from the environment or a file.
	Text string
}

func (p Problem) String() string {
	var b strings.Builder
	if p.Line > 0 {
		fmt.Fprintf(&b, "line %d: ", p.Line)
	}
	if p.Path != "" {
		b.WriteString(p.Path + ": ")
	}
	return b.String() + p.Text
}

// Error is everything that is wrong in a file, in the order of its lines.
type Error struct {
	Problems []Problem
}

func (e *Error) Error() string {
	if len(e.Problems) == 1 {
		return e.Problems[0].String()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d problems", len(e.Problems))
	for _, p := range e.Problems {
		b.WriteString("\n  " + p.String())
	}
	return b.String()
}

// Report takes a problem found by a Validator. path is relative to the options
// that are validated, such as "tls.ca"; empty means the options as a whole.
type Report func(path, problem string)

// Validator is implemented by options that have more rules than their tags
// tell. It is called once all values are set, and must not echo a value.
type Validator interface {
	Validate(report Report)
}

func sortProblems(ps []Problem) {
	slices.SortStableFunc(ps, func(a, b Problem) int { return a.Line - b.Line })
}

// suggest returns `, did you mean "x"?` for the nearest of the known words, or
// the list of them when none is near.
func suggest(word string, known []string) string {
	best, bestDistance := "", len(word)/3+2
	for _, k := range known {
		if d := distance(strings.ToLower(word), k); d < bestDistance {
			best, bestDistance = k, d
		}
	}
	if best != "" {
		return fmt.Sprintf(", did you mean %q?", best)
	}
	if len(known) == 0 {
		return ""
	}
	return "; known are: " + strings.Join(known, ", ")
}

// distance is the number of insertions, deletions, replacements and swaps of
// neighbours between a and b.
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			d := min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, rows[i-2][j-2]+1)
			}
			rows[i][j] = d
		}
	}
	return rows[len(a)][len(b)]
}
