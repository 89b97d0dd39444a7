package kafka

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"text/template"

	"github.com/gooutbox/outbox/core"
)

// topicFields is what a topic template may use. Being few and comparable, they
// are also the key under which the finished name is remembered.
type topicFields struct {
	Type, Aggregate, Tenant string
	Version                 int
	Route                   string
}

// topics names the topic of each event.
type topics struct {
	tmpl   *template.Template
	fields string // the fields that the template mentions, for errors

	mu    sync.RWMutex
	names map[topicFields]string
}

const (
	// maxTopicNames bounds what is remembered, whatever the events' types are.
	maxTopicNames = 10_000
	// maxNameBytes is Kafka's bound of a topic's name.
	maxNameBytes = 249
)

func newTopics(text string) (*topics, error) {
	tmpl, err := template.New("topic").Option("missingkey=error").
		Funcs(template.FuncMap{"required": required}).Parse(text)
	if err != nil {
		return nil, fmt.Errorf("is no template: %w", err)
	}
	t := &topics{tmpl: tmpl, fields: mentioned(text), names: map[topicFields]string{}}
	if _, err := t.execute(topicFields{"type", "aggregate", "tenant", 1, "route"}); err != nil {
		return nil, fmt.Errorf("makes no topic of a sample event: %w", err)
	}
	return t, nil
}

// fixed is the topic if it is the same for all events, else "".
func (t *topics) fixed() string {
	one, _ := t.execute(topicFields{"type", "aggregate", "tenant", 1, "route"})
	if two, err := t.execute(topicFields{"epyt", "etagergga", "tnanet", 2, "etuor"}); err == nil && one == two {
		return one
	}
	return ""
}

// of returns the event's topic, or a *core.FieldError. Only topics of valid
// events are remembered: the others are of any size and any number.
func (t *topics) of(l *core.Lease) (string, error) {
	f := topicFields{l.Event.Type, l.Event.Aggregate, l.Event.Tenant, l.Event.Version, l.Route}
	if max(len(f.Type), len(f.Aggregate), len(f.Tenant), len(f.Route)) > core.MaxNameBytes {
		return t.execute(f)
	}
	t.mu.RLock()
	name, ok := t.names[f]
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
	if len(t.names) >= maxTopicNames {
		clear(t.names)
	}
	t.names[f] = name
	return name, nil
}

func (t *topics) execute(f topicFields) (string, error) {
	var w nameWriter
	err := t.tmpl.Execute(&w, f)
	if missing, ok := errors.AsType[missingFieldError](err); ok {
		return "", &core.FieldError{Field: fmt.Sprintf("%.64s", string(missing)), Problem: "is empty, and the topic's name needs it"}
	}
	if err != nil && !errors.Is(err, errNameTooLong) {
		return "", &core.FieldError{Field: t.fields, Problem: fmt.Sprintf("makes no topic: %.200s", err.Error())}
	}
	if err != nil || !validTopic(string(w.name)) {
		return "", &core.FieldError{
			Field:   t.fields,
			Problem: "makes no valid topic: a name has 1 to 249 of A-Z a-z 0-9 . _ - and is neither . nor ..",
		}
	}
	return string(w.name), nil
}

// nameWriter takes no more than a topic's name may have.
type nameWriter struct{ name []byte }

var errNameTooLong = errors.New("the topic's name is too long")

func (w *nameWriter) Write(p []byte) (int, error) {
	if len(w.name)+len(p) > maxNameBytes {
		return 0, errNameTooLong
	}
	w.name = append(w.name, p...)
	return len(p), nil
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

var fieldPattern = regexp.MustCompile(`\.(Type|Aggregate|Tenant|Version|Route)\b`)

// mentioned lists the fields in a template, as "Type" or "Tenant, Type".
func mentioned(text string) string {
	var names []string
	for _, m := range fieldPattern.FindAllStringSubmatch(text, -1) {
		if !strings.Contains(strings.Join(names, " "), m[1]) {
			names = append(names, m[1])
		}
	}
	if names == nil {
		return "Topic"
	}
	return strings.Join(names, ", ")
}

// validTopic follows Kafka's rules for topic names.
func validTopic(name string) bool {
	if name == "" || len(name) > maxNameBytes || name == "." || name == ".." {
		return false
	}
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}
