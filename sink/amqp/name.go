package amqp

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"text/template"
	"unicode/utf8"

	"github.com/gooutbox/outbox/core"
)

// maxShort is how long AMQP's short strings may be: names of exchanges, routing
// keys, header names and all properties that are texts.
const maxShort = 255

// nameFields is what the templates of exchange and routing key may use.
type nameFields struct {
	Type, Aggregate, AggregateID, Tenant string
	Version                              int
	Route                                string
}

// name makes the exchange or the routing key of each event.
type name struct {
	what string // for errors: "exchange" or "routing key"
	tmpl *template.Template
	// text is the name if the template has nothing to fill in.
	text   string
	fixed  bool
	fields string // that the template mentions, for errors
}

// newName reads a template. An exchange may be empty as a whole, then it is the
// default one, but no event may make it so.
func newName(what, text string, exchange bool) (*name, error) {
	tmpl, err := template.New(what).Option("missingkey=error").
		Funcs(template.FuncMap{"required": required}).Parse(text)
	if err != nil {
		return nil, fmt.Errorf("is no template: %w", err)
	}
	n := &name{what: what, tmpl: tmpl, text: text, fixed: !strings.Contains(text, "{{"), fields: mentioned(text)}
	if n.fixed {
		if text == "" && exchange {
			return n, nil
		}
		return n, validName(text)
	}
	if _, err := n.execute(nameFields{"type", "aggregate", "id", "tenant", 1, "route"}); err != nil {
		return nil, fmt.Errorf("makes no %s of a sample event: %w", what, err)
	}
	return n, nil
}

// of returns the event's name, or a *core.FieldError.
func (n *name) of(l *core.Lease) (string, error) {
	if n.fixed {
		return n.text, nil
	}
	return n.execute(nameFields{l.Event.Type, l.Event.Aggregate, l.Event.AggregateID, l.Event.Tenant, l.Event.Version, l.Route})
}

func (n *name) execute(f nameFields) (string, error) {
	var w nameWriter
	err := n.tmpl.Execute(&w, f)
	if missing, ok := errors.AsType[missingFieldError](err); ok {
		return "", &core.FieldError{Field: fmt.Sprintf("%.64s", string(missing)), Problem: "is empty, and the " + n.what + " needs it"}
	}
	if err != nil && !errors.Is(err, errNameTooLong) {
		return "", &core.FieldError{Field: n.fields, Problem: fmt.Sprintf("makes no %s: %.200s", n.what, err.Error())}
	}
	text := string(w.name)
	if err == nil {
		err = validName(text)
	}
	if err != nil {
		return "", &core.FieldError{Field: n.fields, Problem: "makes no valid " + n.what + " by its template: it " + err.Error()}
	}
	return text, nil
}

func validName(text string) error {
	switch {
	case text == "":
		return errors.New("is empty")
	case len(text) > maxShort:
		return errNameTooLong
	case hasControl(text) || !utf8.ValidString(text):
		return errors.New("contains a control character or is not valid UTF-8")
	}
	return nil
}

func hasControl(text string) bool {
	return strings.ContainsFunc(text, func(r rune) bool { return r < 0x20 || r == 0x7f })
}

// nameWriter takes no more than a short string may have.
type nameWriter struct{ name []byte }

var errNameTooLong = fmt.Errorf("has more than the %d bytes that AMQP allows", maxShort)

func (w *nameWriter) Write(p []byte) (int, error) {
	if len(w.name)+len(p) > maxShort {
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

var fieldPattern = regexp.MustCompile(`\.(Type|AggregateID|Aggregate|Tenant|Version|Route)\b`)

// mentioned lists the fields in a template, as "Type" or "Tenant, Type".
func mentioned(text string) string {
	var names []string
	seen := map[string]bool{}
	for _, m := range fieldPattern.FindAllStringSubmatch(text, -1) {
		if !seen[m[1]] {
			seen[m[1]] = true
			names = append(names, m[1])
		}
	}
	if names == nil {
		return "Template"
	}
	return strings.Join(names, ", ")
}
