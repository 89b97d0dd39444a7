package main

import (
	"regexp"
	"strings"
)

// unknownField is what text/template says of a field that isn't there.
var unknownField = regexp.MustCompile(`can't evaluate field (\w+) in type \S+`)

// templateProblem says what is wrong with a template, in the place of the
// parser's words where it names a field that isn't there.
func templateProblem(problem string, fields ...string) string {
	m := unknownField.FindStringSubmatch(problem)
	if m == nil {
		return problem
	}
	return "there is no ." + m[1] + "; a template may use " + strings.Join(fields, ", ")
}

var (
	topicTemplateFields = []string{".Type", ".Aggregate", ".Tenant", ".Version", ".Route"}
	amqpTemplateFields  = []string{".Type", ".Aggregate", ".AggregateID", ".Tenant", ".Version", ".Route"}
)
