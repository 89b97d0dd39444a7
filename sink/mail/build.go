package mail

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/mail"
	"slices"
	"strings"
	"time"

	gomail "github.com/wneessen/go-mail"
)

// built is a mail as bytes, with its envelope.
type built struct {
	sender     string
	recipients []string
	message    []byte
	// hash is that of message, in hex, and messageID stands without brackets.
	hash, messageID string
	smtpUTF8        bool
}

// origin is what the bytes of a mail derive from besides its content, so that
// all attempts have the same.
type origin struct {
	// id is the job's, and at when it was enqueued.
	id string
	at time.Time
	// from and sender are the sink's.
	from, sender *mail.Address
	maxBytes     int
}

// content is what a mail says.
type content struct {
	subject, text, html string
}

// maxLineBytes is RFC 5322's limit of a line without its end.
const maxLineBytes = 998

// build makes the bytes. m is valid. The same arguments make the same bytes.
func build(m *Message, c content, o origin) (built, error) {
	msg := gomail.NewMsg(gomail.WithNoDefaultUserAgent(), gomail.WithEncoding(gomail.EncodingQP))
	b, err := address(msg, m, o)
	if err != nil {
		return built{}, err
	}
	if err := header(msg, m, c.subject); err != nil {
		return built{}, err
	}
	sum := sha256.Sum256([]byte("message-id:" + o.id))
	b.messageID = hex.EncodeToString(sum[:16]) + "@" + domainOf(b.sender)
	msg.SetMessageIDWithValue(b.messageID)
	msg.SetDateWithValue(o.at.UTC())

	switch {
	case c.html == "":
		msg.SetBodyString(gomail.TypeTextPlain, c.text)
	case c.text == "":
		msg.SetBodyString(gomail.TypeTextHTML, c.html)
	default:
		msg.SetBodyString(gomail.TypeTextPlain, c.text)
		msg.AddAlternativeString(gomail.TypeTextHTML, c.html)
	}
	for _, a := range m.Inline {
		msg.EmbedReadSeeker(a.Name, bytes.NewReader(a.Content), part(a, "inline"))
	}
	for _, a := range m.Attachments {
		msg.AttachReadSeeker(a.Name, bytes.NewReader(a.Content), part(a, "attachment"))
	}
	var buf bytes.Buffer
	if _, err := msg.WriteTo(&buf); err != nil {
		return built{}, fmt.Errorf("building the mail: %w", err)
	}
	b.message, err = settleBoundaries(buf.Bytes(), o.id)
	if err != nil {
		return built{}, fmt.Errorf("building the mail: %w", err)
	}
	if !bytes.HasSuffix(b.message, []byte("\r\n")) {
		b.message = append(b.message, "\r\n"...)
	}
	if err := checkBytes(b.message, o.maxBytes); err != nil {
		return built{}, err
	}
	hash := sha256.Sum256(b.message)
	b.hash = hex.EncodeToString(hash[:])
	return b, nil
}

// address sets the fields that hold addresses, and makes the envelope of the same.
func address(msg *gomail.Msg, m *Message, o origin) (built, error) {
	from := o.from
	if m.From != "" {
		var err error
		if from, err = parseAddress(m.From); err != nil {
			return built{}, fmt.Errorf("from %w", err)
		}
	}
	if from == nil {
		return built{}, errors.New("the mail has no from, and the sink has none either")
	}
	lists := [4][]*mail.Address{}
	for i, list := range [4][]string{m.To, m.Cc, m.Bcc, m.ReplyTo} {
		for _, s := range list {
			a, err := parseAddress(s)
			if err != nil {
				return built{}, fmt.Errorf("an address %w", err)
			}
			lists[i] = append(lists[i], a)
		}
	}
	to, cc, bcc, replyTo := lists[0], lists[1], lists[2], lists[3]
	msg.FromMailAddress(from)
	if len(to) > 0 {
		msg.ToMailAddress(to...)
	} else if len(cc) == 0 {
		msg.SetGenHeader(gomail.Header("To"), "undisclosed-recipients:;")
	}
	if len(cc) > 0 {
		msg.CcMailAddress(cc...)
	}
	if len(replyTo) > 0 {
		msg.ReplyToMailAddress(replyTo...)
	}
	b := built{sender: from.Address, recipients: recipients(to, cc, bcc)}
	if o.sender != nil {
		b.sender = o.sender.Address
	}
	for _, one := range slices.Concat(to, cc, bcc, replyTo, []*mail.Address{from, {Address: b.sender}}) {
		b.smtpUTF8 = b.smtpUTF8 || !isASCII(one.Address)
	}
	return b, nil
}

func header(msg *gomail.Msg, m *Message, subject string) error {
	if problem := controlIn(subject, ""); problem != "" || len(subject) > maxSubjectBytes {
		return errors.New("the subject holds a control character, or more than 2000 bytes")
	}
	msg.Subject(subject)
	for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
		msg.SetGenHeader(gomail.Header(name), m.Headers[name])
	}
	u := m.Unsubscribe
	if u == nil {
		return nil
	}
	var ways []string
	if u.URL != "" {
		ways = append(ways, "<"+u.URL+">")
	}
	if u.Mail != "" {
		a, err := parseAddress(u.Mail)
		if err != nil {
			return fmt.Errorf("unsubscribe.mail %w", err)
		}
		ways = append(ways, "<mailto:"+a.Address+">")
	}
	msg.SetGenHeader(gomail.HeaderListUnsubscribe, strings.Join(ways, ", "))
	if u.URL != "" && !u.Ask {
		msg.SetGenHeader(gomail.HeaderListUnsubscribePost, "List-Unsubscribe=One-Click")
	}
	return nil
}

// part sets the fields of a file: its name in the form of RFC 2231, which every
// reader of today knows, where the library would put an encoded word between quotes.
func part(a Attachment, disposition string) gomail.FileOption {
	return func(f *gomail.File) {
		kind := a.Type
		if kind == "" {
			kind = "application/octet-stream"
		}
		f.Header.Set("Content-Type", kind)
		f.Header.Set("Content-Transfer-Encoding", "base64")
		f.Header.Set("Content-Disposition", mime.FormatMediaType(disposition, map[string]string{"filename": a.Name}))
		if a.ID != "" {
			f.Header.Set("Content-Id", "<"+a.ID+">")
		}
	}
}

// settleBoundaries replaces the random boundaries of a mail by such as derive
// from its id: the same length, and as hard to guess as the id.
func settleBoundaries(message []byte, id string) ([]byte, error) {
	parsed, err := mail.ReadMessage(bytes.NewReader(message))
	if err != nil {
		return nil, err
	}
	found, err := boundaries(parsed.Header.Get("Content-Type"), parsed.Body)
	if err != nil {
		return nil, err
	}
	for i, boundary := range found {
		sum := sha256.Sum256(fmt.Appendf(nil, "boundary:%d:%s", i, id))
		settled := hex.EncodeToString(sum[:])[:min(len(boundary), 2*len(sum))]
		message = bytes.ReplaceAll(message, []byte(boundary), []byte(settled))
	}
	return message, nil
}

// boundaries lists those of a part and of all parts in it.
func boundaries(contentType string, body io.Reader) ([]string, error) {
	kind, parameters, err := mime.ParseMediaType(contentType)
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(kind, "multipart/") {
		return nil, nil
	}
	all := []string{parameters["boundary"]}
	parts := multipart.NewReader(body, parameters["boundary"])
	for {
		p, err := parts.NextRawPart()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		inner, err := boundaries(p.Header.Get("Content-Type"), p)
		if err != nil {
			return nil, err
		}
		all = append(all, inner...)
	}
}

// checkBytes looks at what no earlier check can see for sure.
func checkBytes(message []byte, limit int) error {
	if limit > 0 && len(message) > limit {
		return fmt.Errorf("the mail is too large: %d bytes, limit %d", len(message), limit)
	}
	for line := range bytes.SplitSeq(message, []byte("\r\n")) {
		if len(line) > maxLineBytes {
			return fmt.Errorf("a line of the mail has %d bytes, limit %d", len(line), maxLineBytes)
		}
		if bytes.ContainsAny(line, "\r\n\x00") {
			return errors.New("the mail holds a bare CR, LF or NUL")
		}
	}
	return nil
}
