// Package naming makes the name of a topic, queue or exchange for each event by
// a text/template.
package naming

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"text/template"

	"github.com/gooutbox/outbox/core"
)

// Spec says what is named.
type Spec struct {
	// What is named, such as "topic", and Owner whose field is needed where the
	// template requires one, such as "topic's name".
	What, Owner string
	// Field is what errors name where the template mentions no field of the
	// event.
	Field string
	// Most is how many bytes a name may have. No more than one above are made.
	Most int
	// AggregateID tells that it may be used. Names that depend on it are not
	// remembered: there may be any number.
	AggregateID bool
	// Funcs are what the template may call beside "required", which takes a
	// field's name and its value and refuses an empty one.
	Funcs template.FuncMap
	// Valid is why a name is none, or nil. It must refuse one of more than Most
	// bytes.
	Valid func(name string) error
}

// fields is what a template may use. Being few and comparable, they are also the
// key under which the finished name is remembered.
type fields struct {
	Type, Aggregate, Tenant string
	Version                 int
	Route                   string
}

// fieldsOfKey is what a template may use that mentions the AggregateID.
type fieldsOfKey struct {
	fields
	AggregateID string
}

var (
	sample      = fieldsOfKey{fields{"type", "aggregate", "tenant", 1, "route"}, "id"}
	otherSample = fieldsOfKey{fields{"epyt", "etagergga", "tnanet", 2, "etuor"}, "di"}
)

// Template makes names. Its methods may be called by several goroutines at once.
type Template struct {
	spec      Spec
	tmpl      *template.Template
	mentioned []string
	usesKey   bool // the name may depend on the AggregateID
	fixed     string

	mu    sync.RWMutex
	names map[fields]string
}

// maxNames bounds what is remembered, whatever the events' types are.
const maxNames = 10_000

// Parse reads a template and tries it with a sample event. Its error continues a
// sentence that begins with the field of the configuration.
func Parse(text string, spec Spec) (*Template, error) {
	t, err := parse(text, spec)
	if err != nil {
		return nil, err
	}
	one, err := t.execute(sample)
	if err != nil {
		if unknown := unknownField.FindStringSubmatch(err.Error()); unknown != nil {
			err = fmt.Errorf("there is no .%s; a template may use %s", unknown[1], spec.usable())
		}
		return nil, fmt.Errorf("makes no %s of a sample event: %w", spec.What, err)
	}
	if two, err := t.execute(otherSample); err == nil && one == two {
		t.fixed = one
	}
	return t, nil
}

func parse(text string, spec Spec) (*Template, error) {
	funcs := template.FuncMap{"required": required}
	tmpl, err := template.New(spec.What).Option("missingkey=error").Funcs(funcs).Funcs(spec.Funcs).Parse(text)
	if err != nil {
		return nil, fmt.Errorf("is no template: %w", err)
	}
	t := &Template{spec: spec, tmpl: tmpl, mentioned: mentioned(text), names: map[fields]string{}}
	t.usesKey = spec.AggregateID && slices.Contains(t.mentioned, "AggregateID")
	return t, nil
}

// unknownField is what text/template says of a field that isn't there.
var unknownField = regexp.MustCompile(`can't evaluate field (\w+) in type \S+`)

// usable lists the fields that a template may use.
func (s *Spec) usable() string {
	if s.AggregateID {
		return ".Type, .Aggregate, .AggregateID, .Tenant, .Version, .Route"
	}
	return ".Type, .Aggregate, .Tenant, .Version, .Route"
}

// Fixed is the name if it is the same for all events, else "".
func (t *Template) Fixed() string { return t.fixed }

// Of returns the event's name, or a *core.FieldError. Only names of valid
// events are remembered: the others are of any size and any number.
func (t *Template) Of(l *core.Lease) (string, error) {
	f := fieldsOfKey{fields{l.Event.Type, l.Event.Aggregate, l.Event.Tenant, l.Event.Version, l.Route}, l.Event.AggregateID}
	if t.usesKey || max(len(f.Type), len(f.Aggregate), len(f.Tenant), len(f.Route)) > core.MaxNameBytes {
		return t.execute(f)
	}
	t.mu.RLock()
	name, ok := t.names[f.fields]
	t.mu.RUnlock()
	if ok {
		return name, nil
	}
	name, err := t.execute(f)
	if err != nil {
		return "", err
	}
	// A string may be a part of a larger one, such as a whole document.
	f.Type, f.Aggregate = strings.Clone(f.Type), strings.Clone(f.Aggregate)
	f.Tenant, f.Route = strings.Clone(f.Tenant), strings.Clone(f.Route)
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.names) >= maxNames {
		clear(t.names)
	}
	t.names[f.fields] = name
	return name, nil
}

func (t *Template) execute(f fieldsOfKey) (string, error) {
	var data any = f.fields // all that a remembered name may depend on
	if t.usesKey {
		data = f
	}
	w := writer{most: t.spec.Most}
	err := t.tmpl.Execute(&w, data)
	if missing, ok := errors.AsType[missingFieldError](err); ok {
		return "", &core.FieldError{
			Field: fmt.Sprintf("%.64s", string(missing)), Problem: "is empty, and the " + t.spec.Owner + " needs it",
		}
	}
	if err != nil && !errors.Is(err, errTooLong) {
		return "", &core.FieldError{Field: t.Fields(), Problem: fmt.Sprintf("makes no %s: %.200s", t.spec.What, err.Error())}
	}
	if err := t.spec.Valid(string(w.name)); err != nil {
		return "", &core.FieldError{Field: t.Fields(), Problem: fmt.Sprintf("makes no valid %s: %s", t.spec.What, err.Error())}
	}
	return string(w.name), nil
}

// writer takes one byte more than a name may have, so that the name is seen to
// be too long.
type writer struct {
	name []byte
	most int
}

var errTooLong = errors.New("the name is too long")

func (w *writer) Write(p []byte) (int, error) {
	n := min(len(p), w.most+1-len(w.name))
	w.name = append(w.name, p[:n]...)
	if len(w.name) > w.most {
		return n, errTooLong
	}
	return n, nil
}

// missingFieldError is the name of a field that required found empty.
type missingFieldError string

func (m missingFieldError) Error() string { return string(m) + " is empty" }

func required(field, value string) (string, error) {
	if value == "" {
		return "", missingFieldError(field)
	}
	return value, nil
}

var fieldPattern = regexp.MustCompile(`\.(Type|AggregateID|Aggregate|Tenant|Version|Route)\b`)

// mentioned are the fields in a template, each once.
func mentioned(text string) (names []string) {
	seen := map[string]bool{}
	for _, m := range fieldPattern.FindAllStringSubmatch(text, -1) {
		if !seen[m[1]] {
			seen[m[1]] = true
			names = append(names, m[1])
		}
	}
	return names
}

// Fields lists the fields that the template mentions, as "Type" or "Tenant,
// Type"; errors name them.
func (t *Template) Fields() string {
	if t.mentioned == nil {
		return t.spec.Field
	}
	return strings.Join(t.mentioned, ", ")
}
