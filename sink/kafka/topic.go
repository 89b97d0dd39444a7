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
	names map[topicFields]topicName
}

type topicName struct {
	name string
	err  error
}

// maxTopicNames bounds what is remembered, whatever the events' types are.
const maxTopicNames = 10_000

func newTopics(text string) (*topics, error) {
	tmpl, err := template.New("topic").Option("missingkey=error").
		Funcs(template.FuncMap{"required": required}).Parse(text)
	if err != nil {
		return nil, fmt.Errorf("is no template: %w", err)
	}
	t := &topics{tmpl: tmpl, fields: mentioned(text), names: map[topicFields]topicName{}}
	if sample := t.execute(topicFields{"type", "aggregate", "tenant", 1, "route"}); sample.err != nil {
		return nil, fmt.Errorf("makes no topic of a sample event: %w", sample.err)
	}
	return t, nil
}

// fixed is the topic if it is the same for all events, else "".
func (t *topics) fixed() string {
	one := t.execute(topicFields{"type", "aggregate", "tenant", 1, "route"})
	two := t.execute(topicFields{"epyt", "etagergga", "tnanet", 2, "etuor"})
	if one.name == two.name {
		return one.name
	}
	return ""
}

// of returns the event's topic, or a *core.FieldError.
func (t *topics) of(l *core.Lease) (string, error) {
	f := topicFields{l.Event.Type, l.Event.Aggregate, l.Event.Tenant, l.Event.Version, l.Route}
	t.mu.RLock()
	n, ok := t.names[f]
	t.mu.RUnlock()
	if ok {
		return n.name, n.err
	}
	n = t.execute(f)
	t.mu.Lock()
	if len(t.names) >= maxTopicNames {
		clear(t.names)
	}
	t.names[f] = n
	t.mu.Unlock()
	return n.name, n.err
}

func (t *topics) execute(f topicFields) topicName {
	var b strings.Builder
	if err := t.tmpl.Execute(&b, f); err != nil {
		if missing, ok := errors.AsType[missingFieldError](err); ok {
			return topicName{err: &core.FieldError{Field: string(missing), Problem: "is empty, and the topic's name needs it"}}
		}
		return topicName{err: &core.FieldError{Field: t.fields, Problem: "makes no topic: " + err.Error()}}
	}
	if !validTopic(b.String()) {
		return topicName{err: &core.FieldError{
			Field:   t.fields,
			Problem: "makes no valid topic: a name has 1 to 249 of A-Z a-z 0-9 . _ - and is neither . nor ..",
		}}
	}
	return topicName{name: b.String()}
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
	if name == "" || len(name) > 249 || name == "." || name == ".." {
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
