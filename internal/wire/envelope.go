package wire

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/gooutbox/outbox/core"
)

// Names of the attributes by which a service that takes few attributes, and
// text only, is still given everything.
const (
	// Rest holds the headers that found no place, as one JSON object of strings.
	Rest = "outboxrest"
	// Body says how the body is to be read. It is absent where the body is the
	// payload.
	Body = "outboxbody"
)

// Values of Body.
const (
	// BodyBase64: the body is the payload in base64 (RFC 4648 section 4, with
	// padding).
	BodyBase64 = "base64"
	// BodyEmpty: the payload is empty; the body is a filler that means nothing.
	BodyEmpty = "empty"
)

// Filler is the body of an empty payload, where a service takes no empty body.
const Filler = "-"

// Fit returns at most `most` of the headers, in their order. Those for which
// travels is false, and those beyond the number, are gathered in a last one
// named Rest; Gather undoes it. The error is a *core.FieldError for a header
// that has the name Rest or Body, or that isn't UTF-8.
func Fit(headers []Header, most int, travels func(Header) bool) ([]Header, error) {
	fitting := 0
	for _, h := range headers {
		if equalAny(h.Name, Rest, Body) {
			return nil, &core.FieldError{Field: fmt.Sprintf("Headers[%.64q]", h.Name), Problem: "has a name that the message uses itself"}
		}
		if !utf8.ValidString(h.Name) || !utf8.ValidString(h.Value) {
			return nil, &core.FieldError{Field: fmt.Sprintf("Headers[%.64q]", h.Name), Problem: "is not valid UTF-8"}
		}
		if travels(h) {
			fitting++
		}
	}
	if fitting == len(headers) && fitting <= most {
		return headers, nil
	}
	out := make([]Header, 0, most)
	var rest strings.Builder
	for _, h := range headers {
		if len(out) < most-1 && travels(h) {
			out = append(out, h)
			continue
		}
		if rest.Len() > 0 {
			rest.WriteByte(',')
		}
		rest.WriteString(quote(h.Name))
		rest.WriteByte(':')
		rest.WriteString(quote(h.Value))
	}
	return append(out, Header{Rest, "{" + rest.String() + "}"}), nil
}

// quote returns s as a JSON string of characters that XML takes too: JSON alone
// would leave the two that are no characters as they are.
func quote(s string) string {
	text, _ := json.Marshal(s) // a string always has a form
	return nonCharacters.Replace(string(text))
}

var nonCharacters = strings.NewReplacer("\ufffe", `\ufffe`, "\uffff", `\uffff`)

// Gather returns the headers that Fit was given, those of Rest in no particular
// order. headers without Rest are returned as they are.
func Gather(headers []Header) ([]Header, error) {
	for i, h := range headers {
		if h.Name != Rest {
			continue
		}
		var rest map[string]string
		if err := json.Unmarshal([]byte(h.Value), &rest); err != nil {
			return nil, fmt.Errorf("reading the attribute %s: %w", Rest, err)
		}
		out := slices.Concat(headers[:i], headers[i+1:])
		for name, value := range rest {
			out = append(out, Header{name, value})
		}
		return out, nil
	}
	return headers, nil
}

// Text returns the payload as a body of at least one character, and the value
// of Body, which is empty for a payload that travels as it is: valid UTF-8 of
// characters for which takes is true.
func Text(payload []byte, takes func(rune) bool) (body, encoding string) {
	if len(payload) == 0 {
		return Filler, BodyEmpty
	}
	if IsText(string(payload), takes) {
		return string(payload), ""
	}
	return base64.StdEncoding.EncodeToString(payload), BodyBase64
}

// IsText tells whether s is valid UTF-8 of characters for which takes is true.
func IsText(s string, takes func(rune) bool) bool {
	return utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !takes(r) }) < 0
}

// Payload undoes Text.
func Payload(body, encoding string) ([]byte, error) {
	switch encoding {
	case "":
		return []byte(body), nil
	case BodyEmpty:
		return []byte{}, nil
	case BodyBase64:
		payload, err := base64.StdEncoding.DecodeString(body)
		if err != nil {
			return nil, fmt.Errorf("reading a body in base64: %w", err)
		}
		return payload, nil
	}
	return nil, fmt.Errorf("reading a body: %s %q is not known, read it with a newer version", Body, encoding)
}
