package sqs

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"text/template"

	"github.com/gooutbox/outbox/core"
)

// queueFields is what a queue template may use. Being few and comparable, they
// are also the key under which the finished name is remembered.
type queueFields struct {
	Type, Aggregate, Tenant string
	Version                 int
	Route                   string
}

// queues names the queue of each event.
type queues struct {
	tmpl   *template.Template
	fields string // the fields that the template mentions, for errors

	mu    sync.RWMutex
	names map[queueFields]string
}

const (
	// maxQueues bounds what is remembered, whatever the events' types are.
	maxQueues = 10_000
	// maxPlace bounds a URL.
	maxPlace = 512
)

func newQueues(text string) (*queues, error) {
	tmpl, err := template.New("queue").Option("missingkey=error").
		Funcs(template.FuncMap{"required": required, "replace": replace}).Parse(text)
	if err != nil {
		return nil, fmt.Errorf("is no template: %w", err)
	}
	q := &queues{tmpl: tmpl, fields: mentioned(text), names: map[queueFields]string{}}
	if _, err := q.execute(queueFields{"type", "aggregate", "tenant", 1, "route"}); err != nil {
		return nil, fmt.Errorf("makes no queue of a sample event: %w", err)
	}
	return q, nil
}

// fixed is the queue if it is the same for all events, else "".
func (q *queues) fixed() string {
	one, _ := q.execute(queueFields{"type", "aggregate", "tenant", 1, "route"})
	if two, err := q.execute(queueFields{"epyt", "etagergga", "tnanet", 2, "etuor"}); err == nil && one == two {
		return one
	}
	return ""
}

// of returns the name or URL of the event's queue, or a *core.FieldError. Only
// those of valid events are remembered: the others are of any size and number.
func (q *queues) of(l *core.Lease) (string, error) {
	f := queueFields{l.Event.Type, l.Event.Aggregate, l.Event.Tenant, l.Event.Version, l.Route}
	if max(len(f.Type), len(f.Aggregate), len(f.Tenant), len(f.Route)) > core.MaxNameBytes {
		return q.execute(f)
	}
	q.mu.RLock()
	name, ok := q.names[f]
	q.mu.RUnlock()
	if ok {
		return name, nil
	}
	name, err := q.execute(f)
	if err != nil {
		return "", err
	}
	// A string may be a part of a larger one, such as a whole document.
	f.Type, f.Aggregate = strings.Clone(f.Type), strings.Clone(f.Aggregate)
	f.Tenant, f.Route = strings.Clone(f.Tenant), strings.Clone(f.Route)
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.names) >= maxQueues {
		clear(q.names)
	}
	q.names[f] = name
	return name, nil
}

func (q *queues) execute(f queueFields) (string, error) {
	var w placeWriter
	err := q.tmpl.Execute(&w, f)
	if missing, ok := errors.AsType[missingFieldError](err); ok {
		return "", &core.FieldError{Field: fmt.Sprintf("%.64s", string(missing)), Problem: "is empty, and the queue's name needs it"}
	}
	if err != nil && !errors.Is(err, errPlaceTooLong) {
		return "", &core.FieldError{Field: q.fields, Problem: fmt.Sprintf("makes no queue: %.200s", err.Error())}
	}
	if place := string(w.text); err == nil && isPlace(place) {
		return place, nil
	}
	return "", &core.FieldError{
		Field: q.fields,
		Problem: "makes no valid queue: it is a URL that ends in a name, or a name of 1 to 80 of A-Z a-z 0-9 _ -, " +
			"the suffix .fifo of FIFO queues included",
	}
}

// placeWriter takes no more than a URL may have.
type placeWriter struct{ text []byte }

var errPlaceTooLong = errors.New("the queue's name is too long")

func (w *placeWriter) Write(p []byte) (int, error) {
	if len(w.text)+len(p) > maxPlace {
		return 0, errPlaceTooLong
	}
	w.text = append(w.text, p...)
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

func replace(old, by, value string) string { return strings.ReplaceAll(value, old, by) }

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
		return "Queue"
	}
	return strings.Join(names, ", ")
}

// isPlace tells whether the text is the name or the URL of a queue.
func isPlace(place string) bool {
	if !isURL(place) {
		return isQueueName(place)
	}
	u, err := url.Parse(place)
	return err == nil && u.Host != "" && u.User == nil && u.RawQuery == "" && u.Fragment == "" &&
		!strings.Contains(place, "\\") && isQueueName(nameOf(place))
}

func isURL(place string) bool {
	return strings.HasPrefix(place, "https://") || strings.HasPrefix(place, "http://")
}

// nameOf is the queue's name of a name or URL.
func nameOf(place string) string { return place[strings.LastIndexByte(place, '/')+1:] }

func isFIFO(place string) bool { return strings.HasSuffix(place, fifoSuffix) }

// isQueueName follows SQS's rules for the names of queues.
func isQueueName(name string) bool {
	stem := strings.TrimSuffix(name, fifoSuffix)
	if stem == "" || len(name) > maxQueueName {
		return false
	}
	for i := range len(stem) {
		switch c := stem[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}
