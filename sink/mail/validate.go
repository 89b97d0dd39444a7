package mail

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"mime"
	"net/mail"
	"net/url"
	"slices"
	"strings"

	"github.com/gooutbox/outbox/core"
)

// ErrInvalidMessage is matched by every error that Message.Validate returns.
var ErrInvalidMessage = errors.New("invalid mail")

// inBody are the control characters that bodies and templates' data may hold.
const inBody = "\t\r\n"

// Validate reports every problem of the mail at once, as core.FieldErrors joined
// under ErrInvalidMessage, or nil. Fields have their JSON names. It knows neither
// the sink's templates nor its From: what is wrong with those is found when the
// mail is rendered.
func (m *Message) Validate() error {
	var v problems
	m.checkAddresses(&v)
	m.checkContent(&v)
	m.checkFiles(&v)
	m.checkHeaders(&v)
	m.checkUnsubscribe(&v)
	if n := m.encodedBytes(); n > DefaultMaxBytes {
		v = append(v, &core.FieldError{Field: "the mail", Problem: "is too large once encoded", Limit: DefaultMaxBytes, Size: n})
	}
	if len(v) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrInvalidMessage, errors.Join(v...))
}

// problems are those of a mail.
type problems []error

func (v *problems) add(field, problem string) {
	if problem != "" {
		*v = append(*v, &core.FieldError{Field: field, Problem: problem})
	}
}

func (m *Message) checkAddresses(v *problems) {
	check := func(field, s string) {
		if _, err := parseAddress(s); err != nil {
			v.add(field, err.Error())
		}
	}
	if m.From != "" {
		check("from", m.From)
	}
	for _, list := range []struct {
		field     string
		addresses []string
	}{{"to", m.To}, {"cc", m.Cc}, {"bcc", m.Bcc}, {"reply_to", m.ReplyTo}} {
		for i, s := range list.addresses {
			check(fmt.Sprintf("%s[%d]", list.field, i), s)
		}
	}
	switch n := len(m.To) + len(m.Cc) + len(m.Bcc); {
	case n == 0:
		v.add("to", "is empty, and so are cc and bcc")
	case n > MaxRecipients:
		v.add("to", fmt.Sprintf("and cc and bcc have %d addresses, limit %d: make several mails", n, MaxRecipients))
	}
	if len(m.ReplyTo) > MaxRecipients {
		v.add("reply_to", fmt.Sprintf("has %d addresses, limit %d", len(m.ReplyTo), MaxRecipients))
	}
}

// maxSubjectBytes bounds subjects.
const maxSubjectBytes = 2000

func (m *Message) checkContent(v *problems) {
	v.add("subject", controlIn(m.Subject, ""))
	if len(m.Subject) > maxSubjectBytes {
		v.add("subject", fmt.Sprintf("has %d bytes, limit %d", len(m.Subject), maxSubjectBytes))
	}
	v.add("text", controlIn(m.Text, inBody))
	v.add("html", controlIn(m.HTML, inBody))
	if m.Template == "" {
		if m.Subject == "" {
			v.add("subject", "is empty, and there is no template")
		}
		if m.Text == "" && m.HTML == "" {
			v.add("text", "is empty, and so is html, and there is no template")
		}
		if m.Locale != "" {
			v.add("locale", "is set without a template")
		}
		if m.Data != nil {
			v.add("data", "is set without a template")
		}
		return
	}
	if !isTemplateName(m.Template) {
		v.add("template", "is no name of a template: letters, digits, - and _, in parts divided by /")
	}
	if m.Locale != "" && !isLocale(m.Locale) {
		v.add("locale", "is no language tag such as de or de-AT")
	}
	if m.Subject != "" || m.Text != "" || m.HTML != "" {
		v.add("subject", "and text and html must be empty beside a template")
	}
	if m.Data != nil {
		m.checkData(v)
	}
}

func (m *Message) checkData(v *problems) {
	data, err := decodeData(m.Data)
	if err != nil {
		v.add("data", err.Error())
		return
	}
	checkDataValue(v, "data", data)
}

func checkDataValue(v *problems, path string, value any) {
	switch value := value.(type) {
	case string:
		v.add(path, controlIn(value, inBody))
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			if controlIn(key, "") != "" {
				v.add(path, "has a key with a control character")
				continue
			}
			checkDataValue(v, path+"."+key, value[key])
		}
	case []any:
		for i, one := range value {
			checkDataValue(v, fmt.Sprintf("%s[%d]", path, i), one)
		}
	}
}

// decodeData reads a template's data: a JSON object. Whole numbers become int64,
// so that large ones print without an exponent; null becomes absent.
func decodeData(raw json.RawMessage) (map[string]any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var data map[string]any
	if err := d.Decode(&data); err != nil || data == nil {
		return nil, errors.New("is no JSON object")
	}
	for key, value := range data {
		data[key] = plain(value)
	}
	return data, nil
}

// plain makes of a decoded value what templates work with.
func plain(value any) any {
	switch value := value.(type) {
	case nil:
		return absent(nil)
	case json.Number:
		if n, err := value.Int64(); err == nil {
			return n
		}
		if f, err := value.Float64(); err == nil {
			return f
		}
		return value.String()
	case map[string]any:
		for key, one := range value {
			value[key] = plain(one)
		}
	case []any:
		for i, one := range value {
			value[i] = plain(one)
		}
	}
	return value
}

func (m *Message) checkFiles(v *problems) {
	for i, a := range m.Attachments {
		field := fmt.Sprintf("attachments[%d]", i)
		checkFile(v, field, a)
		if a.ID != "" {
			v.add(field+".id", "is set: only inline images have one")
		}
	}
	ids := map[string]bool{}
	for i, a := range m.Inline {
		field := fmt.Sprintf("inline[%d]", i)
		checkFile(v, field, a)
		switch {
		case a.ID == "" || !isDotAtom(strings.ReplaceAll(a.ID, "@", "")) || !isASCII(a.ID) || len(a.ID) > maxLocalBytes:
			v.add(field+".id", "must be 1 to 64 letters, digits and .-_@")
		case ids[a.ID]:
			v.add(field+".id", "is given twice")
		}
		ids[a.ID] = true
	}
	if len(m.Inline) > 0 && m.Template == "" && m.HTML == "" {
		v.add("inline", "is set without html")
	}
}

func checkFile(v *problems, field string, a Attachment) {
	switch {
	case a.Name == "":
		v.add(field+".name", "is empty")
	case len(a.Name) > MaxFileNameBytes:
		v.add(field+".name", fmt.Sprintf("has %d bytes, limit %d", len(a.Name), MaxFileNameBytes))
	case strings.ContainsAny(a.Name, `/\`):
		v.add(field+".name", "contains a slash or backslash")
	default:
		v.add(field+".name", controlIn(a.Name, ""))
	}
	if a.Type == "" {
		return
	}
	kind, _, err := mime.ParseMediaType(a.Type)
	switch {
	case controlIn(a.Type, "") != "" || err != nil || !isASCII(a.Type) || len(a.Type) > maxNameBytes || !strings.Contains(kind, "/"):
		v.add(field+".type", "is no media type such as application/pdf")
	case strings.HasPrefix(kind, "multipart/"), strings.HasPrefix(kind, "message/"):
		v.add(field+".type", "is a multipart or message type, which are not encoded as files are")
	}
}

// reserved are fields that a mail has anyway, or that only servers add; and those
// that begin so.
var (
	reserved = []string{
		"from", "sender", "to", "cc", "bcc", "reply-to", "subject", "date", "message-id", "mime-version", "received", "return-path",
		"delivered-to", "x-envelope-to", "authentication-results", "list-unsubscribe", "list-unsubscribe-post", "dkim-signature",
	}
	reservedPrefixes = []string{"content-", "resent-", "arc-", "x-ses-", "apparently-"}
)

// maxHeaderBytes and maxWordBytes bound a header's value, and what stands in it
// without a space: lines of more than 998 bytes are forbidden.
const (
	maxHeaderBytes = 4000
	maxWordBytes   = 800
)

func (m *Message) checkHeaders(v *problems) {
	folded := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
		value := m.Headers[name]
		field := fmt.Sprintf("headers[%.64q]", name)
		lower := strings.ToLower(name)
		switch {
		case !isFieldName(name):
			v.add(field, "is no name of a header field: printable ASCII without a colon, at most 76 bytes")
		case slices.Contains(reserved, lower) || slices.ContainsFunc(reservedPrefixes, func(p string) bool { return strings.HasPrefix(lower, p) }):
			v.add(field, "is set by the mail's own fields, or by servers only")
		case folded[lower]:
			v.add(field, "is given twice: names are compared without regard to case")
		case controlIn(value, "") != "":
			v.add(field, controlIn(value, ""))
		case len(value) > maxHeaderBytes || slices.ContainsFunc(strings.Fields(value), func(w string) bool { return len(w) > maxWordBytes }):
			v.add(field, fmt.Sprintf("has more than %d bytes, or %d without a space", maxHeaderBytes, maxWordBytes))
		}
		folded[lower] = true
	}
	for _, name := range slices.Sorted(maps.Keys(m.Tags)) {
		if !isTag(name) || !isTag(m.Tags[name]) {
			v.add(fmt.Sprintf("tags[%.64q]", name), "must have a name and a value of 1 to 256 ASCII letters, digits, _ and -")
		}
	}
}

// isFieldName follows RFC 5322 section 3.6.8.
func isFieldName(s string) bool {
	return s != "" && len(s) <= 76 && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == ':' })
}

func isTag(s string) bool {
	return s != "" && len(s) <= 256 && !strings.ContainsFunc(s, func(r rune) bool { return !isWordRune(r) })
}

func isWordRune(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '_' || r == '-'
}

// isTemplateName tells whether s can name a template; also the name of a locale.
func isTemplateName(s string) bool {
	if s == "" || len(s) > core.MaxNameBytes {
		return false
	}
	for part := range strings.SplitSeq(s, "/") {
		if part == "" || part[0] == '_' || strings.ContainsFunc(part, func(r rune) bool { return !isWordRune(r) }) {
			return false
		}
	}
	return true
}

func isLocale(s string) bool { return isTemplateName(s) && !strings.Contains(s, "/") && len(s) <= 35 }

func (m *Message) checkUnsubscribe(v *problems) {
	u := m.Unsubscribe
	if u == nil {
		return
	}
	if u.URL == "" && u.Mail == "" {
		v.add("unsubscribe", "has neither url nor mail")
	}
	if u.URL != "" {
		parsed, err := url.Parse(u.URL)
		if err != nil || parsed.Scheme != "https" || parsed.Host == "" || len(u.URL) > maxWordBytes ||
			!isASCII(u.URL) || strings.ContainsAny(u.URL, "<> ,") || controlIn(u.URL, "") != "" {
			v.add("unsubscribe.url", "is no https:// URL in ASCII of at most 800 bytes without <, > and comma")
		}
	}
	if u.Mail != "" {
		if a, err := parseAddress(u.Mail); err != nil || a.Name != "" || !isASCII(a.Address) {
			v.add("unsubscribe.mail", "is no address in ASCII without a name")
		}
	}
	if u.URL == "" && u.Ask {
		v.add("unsubscribe.ask", "is set without a url")
	}
}

// encodedBytes is about how large the mail gets: base64 takes 78 bytes, line end
// included, for 57, and quoted-printable three for one at worst.
func (m *Message) encodedBytes() int {
	n := 2000 + 3*(len(m.Text)+len(m.HTML))
	for _, files := range [][]Attachment{m.Attachments, m.Inline} {
		for _, a := range files {
			n += len(a.Content)/57*78 + 1000
		}
	}
	return n
}

// recipients are the addresses of To, Cc and Bcc, each once, in this order.
func recipients(lists ...[]*mail.Address) []string {
	var all []string
	seen := map[string]bool{}
	for _, list := range lists {
		for _, a := range list {
			if key := SuppressionKey(a.Address); !seen[key] {
				seen[key] = true
				all = append(all, a.Address)
			}
		}
	}
	return all
}
