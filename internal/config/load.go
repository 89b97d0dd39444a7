package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxFileBytes bounds the configuration and each file that it takes values
// from.
const maxFileBytes = 1 << 20

// Source is where values of a file come from. Its zero value is the process's
// environment and file system.
type Source struct {
	// Getenv defaults to os.LookupEnv.
	Getenv func(name string) (string, bool)
	// ReadFile defaults to os.ReadFile. Relative paths are relative to the
	// process's working directory.
	ReadFile func(path string) ([]byte, error)
}

// LoadFile reads the file at path, see Load. Its error begins with the path.
func LoadFile(path string, kinds Kinds, src Source) (*File, Redactor, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, Redactor{}, fmt.Errorf("reading the configuration: %w", err)
	}
	defer f.Close() //nolint:errcheck // read only
	data, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return nil, Redactor{}, fmt.Errorf("reading the configuration: %w", err)
	}
	file, redactor, err := Load(data, kinds, src)
	if err != nil {
		return nil, redactor, fmt.Errorf("%s: %w", path, err)
	}
	return file, redactor, nil
}

// Load reads a configuration. The error is an *Error that holds every problem.
// The Redactor knows the secrets that were read, also when the error is not
// nil.
func Load(data []byte, kinds Kinds, src Source) (*File, Redactor, error) {
	if src.Getenv == nil {
		src.Getenv = os.LookupEnv
	}
	if src.ReadFile == nil {
		src.ReadFile = readSmallFile
	}
	d := &decoder{source: src, kinds: kinds, lines: map[string]int{"": 1}}
	file := Default()
	switch root := d.parse(data); {
	case root == nil:
	case kinds.storeOnly:
		d.storeOnly(root, file)
	default:
		d.structure(root, reflect.ValueOf(file).Elem(), "", nil)
		if d.complete {
			d.validate(file)
		}
	}
	file.secrets = d.secrets
	if len(d.problems) > 0 {
		sortProblems(d.problems)
		return nil, file.Redactor(), &Error{Problems: d.problems}
	}
	redactor := file.Redactor()
	return file, redactor, nil
}

func readSmallFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // read only
	data, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err == nil && len(data) > maxFileBytes {
		err = errors.New("is larger than 1 MiB")
	}
	return data, err
}

// decoder fills structs from a parsed document and gathers what is wrong.
type decoder struct {
	source   Source
	kinds    Kinds
	problems []Problem
	// lines holds where each path that was read stands.
	lines map[string]int
	// broken holds the paths of values that were refused, so that a rule over
	// them isn't reported in addition.
	broken  map[string]bool
	secrets []string
	// complete: the top level was a mapping, so rules across it make sense.
	complete bool
}

func (d *decoder) report(path string, line int, format string, args ...any) {
	if d.broken == nil {
		d.broken = map[string]bool{}
	}
	d.broken[path] = true
	d.problems = append(d.problems, Problem{Path: path, Line: line, Text: fmt.Sprintf(format, args...)})
}

var (
	yamlLine   = regexp.MustCompile(`line (\d+): `)
	yamlAnchor = regexp.MustCompile(`unknown anchor .* referenced`)
)

// parse returns the root node, or nil after reporting why there is none.
func (d *decoder) parse(data []byte) *yaml.Node {
	if len(data) > maxFileBytes {
		d.report("", 0, "the file is larger than 1 MiB")
		return nil
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	if err := dec.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			d.report("", 1, "the file is empty: it needs store, sinks and routes")
			return nil
		}
		d.syntax(err)
		return nil
	}
	var more yaml.Node
	if err := dec.Decode(&more); err == nil {
		d.report("", more.Line, "a second document begins here: one file holds one configuration")
	} else if !errors.Is(err, io.EOF) {
		d.syntax(err)
	}
	root := &doc
	if root.Kind == yaml.DocumentNode && len(root.Content) == 1 {
		root = root.Content[0]
	}
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		d.report("", 1, "the file is empty: it needs store, sinks and routes")
		return nil
	}
	d.complete = root.Kind == yaml.MappingNode
	return root
}

// syntax reports an error of the parser, whose text may quote a value only
// where an anchor is unknown.
func (d *decoder) syntax(err error) {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	if yamlAnchor.MatchString(text) {
		text = yamlAnchor.ReplaceAllString(text, "a value begins with * and names no anchor: put it in quotes")
	}
	line := 0
	if m := yamlLine.FindStringSubmatchIndex(text); m != nil {
		line, _ = strconv.Atoi(text[m[2]:m[3]])
		text = text[:m[0]] + text[m[1]:]
	}
	d.report("", line, "is no valid YAML: %s", text)
}

// validate runs the rules of all options, then those of the file.
func (d *decoder) validate(f *File) {
	d.rules("store."+f.Store.Type, f.Store.Options)
	for _, name := range slices.Sorted(maps.Keys(f.Sinks)) {
		d.rules("sinks."+name, f.Sinks[name].Options)
	}
	d.rules("", f)
}

func (d *decoder) rules(base string, options any) {
	v, ok := options.(Validator)
	if !ok {
		return
	}
	v.Validate(func(path, problem string) {
		full := join(base, path)
		if !d.broken[full] {
			d.report(full, d.lineOf(full), "%s", problem)
		}
	})
}

// lineOf returns the line of path, or of the nearest thing around it.
func (d *decoder) lineOf(path string) int {
	for {
		if line, ok := d.lines[path]; ok {
			return line
		}
		cut := strings.LastIndexAny(path, ".[")
		if cut < 0 {
			return d.lines[""]
		}
		path = path[:cut]
	}
}

func join(base, path string) string {
	if base == "" || path == "" {
		return base + path
	}
	return base + "." + path
}
