package config

import (
	"errors"
	"io/fs"
	"reflect"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// scalar returns the text of a single value with ${…} replaced, or false after
// reporting why there is none.
func (d *decoder) scalar(n *yaml.Node, path string, v reflect.Value) (string, bool) {
	switch {
	case n.Kind != yaml.ScalarNode:
		d.report(path, n.Line, "must be a single value, not %s", kindOf(n))
		return "", false
	case n.Tag == "!!null":
		d.report(path, n.Line, "has no value: give one or remove the key")
		return "", false
	case !strings.HasPrefix(n.Tag, "!!"):
		d.report(path, n.Line, "begins with !: put the value in quotes")
		return "", false
	}
	s, ok := d.expand(n.Value, path, n.Line)
	if !ok {
		return "", false
	}
	if v.Kind() == reflect.String && s == "" && n.Value != "" {
		d.report(path, n.Line, "is empty: %s holds nothing", n.Value)
		return "", false
	}
	return s, true
}

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// expand replaces ${NAME} and ${file:PATH} in s, once: what they hold is taken
// as it is.
func (d *decoder) expand(s, path string, line int) (string, bool) {
	if !strings.Contains(s, "${") {
		return s, true
	}
	var b strings.Builder
	ok := true
	for s != "" {
		i := strings.Index(s, "${")
		if i < 0 {
			b.WriteString(s)
			break
		}
		if i > 0 && s[i-1] == '$' {
			b.WriteString(s[:i-1] + "${")
			s = s[i+2:]
			continue
		}
		b.WriteString(s[:i])
		name, rest, closed := strings.Cut(s[i+2:], "}")
		if !closed {
			d.report(path, line, "${ is not closed: write $${ where you mean the two characters")
			return "", false
		}
		value, problem := d.lookup(name)
		if problem != "" {
			d.report(path, line, "%s", problem)
			ok = false
		}
		b.WriteString(value)
		s = rest
	}
	return b.String(), ok
}

func (d *decoder) lookup(name string) (value, problem string) {
	if file, isFile := strings.CutPrefix(name, "file:"); isFile {
		data, err := d.source.ReadFile(file)
		if err != nil {
			if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
				err = pathErr.Err
			}
			return "", "the file " + file + " can't be read: " + err.Error()
		}
		text := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
		d.secrets = append(d.secrets, text)
		return text, ""
	}
	if !variableName.MatchString(name) {
		return "", "${…} takes the name of an environment variable (letters, digits, underscores) or file:/path; write $${ where you mean the two characters"
	}
	value, set := d.source.Getenv(name)
	if !set {
		return "", "the environment variable " + name + " is not set"
	}
	return value, ""
}
