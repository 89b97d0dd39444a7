package main

import (
	"fmt"
	"regexp"
	"strings"
)

// refusedCommand is the beginning of what MongoDB says about a missing right;
// the whole command follows, filters and all.
var refusedCommand = regexp.MustCompile(`not authorized on (\S+) to execute command (\{ (\w+): (?:"([^"]*)")?)`)

// shortened says what a user may not do, and what to grant, in the place of the
// server's words, which hold the whole command. Any other text stays as it is.
func shortened(text string) string {
	m := refusedCommand.FindStringSubmatchIndex(text)
	if m == nil {
		return text
	}
	part := func(i int) string {
		if m[2*i] < 0 {
			return ""
		}
		return text[m[2*i]:m[2*i+1]]
	}
	db, command, on := part(1), part(3), part(1)
	if collection := part(4); collection != "" {
		on += "." + collection
	}
	rest := text[m[4]:]
	return text[:m[0]] + fmt.Sprintf("the user may not %s on %s: grant %s", command, on, roleFor(db, command)) +
		shortened(rest[commandLength(rest):])
}

// roleFor is the least of the server's own roles that allows a command.
func roleFor(db, command string) string {
	role := "readWrite"
	switch {
	case db == "local":
		role = "read"
	case db == "admin":
		role = "clusterMonitor"
	case command == "collMod":
		role = "dbAdmin"
	}
	return fmt.Sprintf("the role %s on the database %s", role, db)
}

// commandLength is the length of the command that text begins with: to the
// brace that closes its first one, or all of a text that was cut.
func commandLength(text string) int {
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{':
			depth++
		case c == '}':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return len(text)
}

// reasonOf is the text of an error for people.
func reasonOf(err error) string { return strings.TrimSpace(shortened(err.Error())) }
