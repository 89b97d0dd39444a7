package core

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits of an event's fields, in bytes.
const (
	// MaxNameBytes bounds Aggregate, Type, Tenant, CorrelationID, ContentType,
	// ID and header names.
	MaxNameBytes = 255
	// MaxKeyBytes bounds AggregateID.
	MaxKeyBytes = 1024
	// DefaultMaxEventBytes is the limit of Event.Size where none is configured:
	// 1 MiB.
	DefaultMaxEventBytes = 1 << 20
)

// FieldError tells that one field of an event can't be accepted. It never
// carries the value itself, which may be a secret.
type FieldError struct {
	// Field is the name of the field, such as "AggregateID" or
	// `Headers["x-trace"]`, or WholeEvent.
	Field string
	// Problem says what is wrong with it and what would be right.
	Problem string
	// Limit is the bound that was crossed, in bytes, and Size what was given;
	// both are 0 where the problem is not one of size.
	Limit, Size int
}

// WholeEvent is the Field of a problem that no single field has, such as the
// size.
const WholeEvent = "Event"

func (e *FieldError) Error() string {
	field := e.Field
	if field == WholeEvent {
		field = "the event"
	}
	if e.Limit > 0 {
		return fmt.Sprintf("%s %s: %d bytes, limit %d", field, e.Problem, e.Size, e.Limit)
	}
	return field + " " + e.Problem
}

// ErrInvalidEvent is matched by every error that Event.Validate returns.
var ErrInvalidEvent = errors.New("invalid event")

// Validate reports every problem of the event at once, as FieldErrors joined
// under ErrInvalidEvent, or nil. maxBytes is the limit of Size;
// 0 means DefaultMaxEventBytes.
func (e *Event) Validate(maxBytes int) error {
	if maxBytes <= 0 {
		maxBytes = DefaultMaxEventBytes
	}
	var errs []error
	add := func(err *FieldError) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	if e.Type == "" {
		add(&FieldError{Field: "Type", Problem: "is empty: name what happened, such as order.placed"})
	}
	if e.AggregateID == "" {
		add(&FieldError{Field: "AggregateID", Problem: "is empty: it is the key that keeps events in order"})
	}
	add(checkText("ID", e.ID, MaxNameBytes))
	add(checkText("Aggregate", e.Aggregate, MaxNameBytes))
	add(checkText("AggregateID", e.AggregateID, MaxKeyBytes))
	add(checkText("Type", e.Type, MaxNameBytes))
	add(checkText("Tenant", e.Tenant, MaxNameBytes))
	add(checkText("ContentType", e.ContentType, MaxNameBytes))
	add(checkText("CorrelationID", e.CorrelationID, MaxNameBytes))
	if e.Version < 0 {
		add(&FieldError{Field: "Version", Problem: "is negative"})
	}
	if e.AggregateVersion < 0 {
		add(&FieldError{Field: "AggregateVersion", Problem: "is negative"})
	}
	add(checkTime("OccurredAt", e.OccurredAt))
	folded := make(map[string]struct{}, len(e.Headers))
	for name, value := range e.Headers {
		add(checkHeader(name, value))
		lower := strings.ToLower(name)
		if _, twice := folded[lower]; twice {
			add(&FieldError{Field: headerField(name), Problem: "is given twice: names are compared without regard to case"})
		}
		folded[lower] = struct{}{}
	}
	if n := e.Size(); n > maxBytes {
		add(&FieldError{Field: WholeEvent, Problem: "is too large", Limit: maxBytes, Size: n})
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrInvalidEvent, errors.Join(errs...))
}

func checkText(field, s string, limit int) *FieldError {
	switch {
	case len(s) > limit:
		return &FieldError{Field: field, Problem: "is too long", Limit: limit, Size: len(s)}
	case !utf8.ValidString(s):
		return &FieldError{Field: field, Problem: "is not valid UTF-8"}
	case strings.ContainsFunc(s, isControl):
		return &FieldError{Field: field, Problem: "contains a control character"}
	}
	return nil
}

func checkTime(field string, t time.Time) *FieldError {
	if t.IsZero() {
		return nil
	}
	if y := t.UTC().Year(); y < 1 || y > 9999 {
		return &FieldError{Field: field, Problem: "is outside the years 1 to 9999 that RFC 3339 can write"}
	}
	return nil
}

func checkHeader(name, value string) *FieldError {
	field := headerField(name)
	switch {
	case name == "":
		return &FieldError{Field: "Headers", Problem: "has an empty name"}
	case len(name) > MaxNameBytes:
		return &FieldError{Field: field, Problem: "has a name that is too long", Limit: MaxNameBytes, Size: len(name)}
	case !isToken(name):
		return &FieldError{Field: field, Problem: "has a name that is no HTTP token: letters, digits and !#$%&'*+-.^_`|~"}
	case hasReservedPrefix(name):
		return &FieldError{Field: field, Problem: "has a name that is reserved: ce_ and ce- mark CloudEvents attributes"}
	case !utf8.ValidString(value):
		return &FieldError{Field: field, Problem: "has a value that is not valid UTF-8"}
	case strings.ContainsFunc(value, func(r rune) bool { return isControl(r) && r != '\t' }):
		return &FieldError{Field: field, Problem: "has a value with a control character"}
	}
	return nil
}

func hasReservedPrefix(name string) bool {
	return len(name) >= 3 && strings.EqualFold(name[:2], "ce") && (name[2] == '_' || name[2] == '-')
}

// headerField quotes and cuts the name, which may be anything.
func headerField(name string) string {
	if len(name) > 64 {
		name = name[:64] + "…"
	}
	return fmt.Sprintf("Headers[%q]", name)
}

func isControl(r rune) bool { return r < 0x20 || r >= 0x7f && r < 0xa0 }

// isToken follows RFC 9110 section 5.6.2.
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0:
		default:
			return false
		}
	}
	return s != ""
}
