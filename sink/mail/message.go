package mail

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/gooutbox/outbox/core"
)

// ContentType is that of a Message in an event's payload.
const ContentType = "application/vnd.outbox.mail+json"

// EventType is the type of the jobs that NewJob makes.
const EventType = "mail.requested"

// Message is a mail as it is enqueued: raw, with Subject and Text or HTML or
// both, or from a template. Its JSON form, with the names below, is the payload
// of its job, which programs in other languages may write too.
//
// Addresses are written as in a mail's header, such as
// "Ada Lovelace <ada@example.org>" or "ada@example.org". Domains may be
// international; those of header and envelope go out in ASCII form. A local part
// beyond ASCII needs a server with SMTPUTF8. Quoted local parts and domain
// literals are refused.
type Message struct {
	// From is the author, who also gets bounces unless the sink names another
	// sender. Defaults to the sink's From.
	From string `json:"from,omitempty"`
	// To, Cc and Bcc are the recipients, at least one and at most MaxRecipients
	// in all. Bcc is in the envelope only. An address that stands twice gets one
	// mail.
	To  []string `json:"to,omitempty"`
	Cc  []string `json:"cc,omitempty"`
	Bcc []string `json:"bcc,omitempty"`
	// ReplyTo is where answers go. Optional.
	ReplyTo []string `json:"reply_to,omitempty"`

	// Subject of a raw mail. Required for one.
	Subject string `json:"subject,omitempty"`
	// Text and HTML are the bodies of a raw mail, at least one of them. Where
	// there is no Text it is made from HTML.
	Text string `json:"text,omitempty"`
	HTML string `json:"html,omitempty"`

	// Template names a template of the sink, in place of Subject, Text and HTML.
	Template string `json:"template,omitempty"`
	// Locale picks its language, such as "de-AT", which falls back to "de" and
	// then to the template's default.
	Locale string `json:"locale,omitempty"`
	// Data is what the template gets: a JSON object. Null stands for something
	// that is known not to be there: it may be asked for by if, but not printed.
	Data json.RawMessage `json:"data,omitempty"`

	// Attachments and Inline images travel with the mail. HTML names an inline
	// image as <img src="cid:ID">.
	Attachments []Attachment `json:"attachments,omitempty"`
	Inline      []Attachment `json:"inline,omitempty"`
	// Headers are further fields of the header. Fields that the mail has anyway,
	// that trace its way, or that would add recipients are refused.
	Headers map[string]string `json:"headers,omitempty"`
	// Tags are for the provider's statistics: see Envelope.Tags.
	Tags map[string]string `json:"tags,omitempty"`
	// Unsubscribe lets readers' programs offer a way out. Optional.
	Unsubscribe *Unsubscribe `json:"unsubscribe,omitempty"`
}

// Attachment is a file of a mail.
type Attachment struct {
	// Name as the reader sees it, at most MaxFileNameBytes. Required.
	Name string `json:"name"`
	// Type is the media type. Defaults to "application/octet-stream".
	Type string `json:"type,omitempty"`
	// ID names an inline image, of which it is required: letters, digits and
	// ".-_@". Refused of attachments.
	ID string `json:"id,omitempty"`
	// Content is the file, in base64 in JSON.
	Content []byte `json:"content"`
}

// Unsubscribe is the List-Unsubscribe field.
type Unsubscribe struct {
	// URL begins with https:// and takes a POST that takes the reader off at
	// once (RFC 8058), unless Ask is set.
	URL string `json:"url,omitempty"`
	// Mail is an address that a mail to takes the reader off. Optional.
	Mail string `json:"mail,omitempty"`
	// Ask tells that the page at URL asks before it takes anybody off: one-click
	// is then not announced.
	Ask bool `json:"ask,omitempty"`
}

// Limits of a Message.
const (
	// MaxRecipients bounds To, Cc and Bcc in all. It is the limit of Amazon SES.
	MaxRecipients = 50
	// MaxFileNameBytes bounds Attachment.Name.
	MaxFileNameBytes = 200
	// DefaultMaxBytes bounds the encoded mail where the sink names no limit: 10
	// MiB, which is what most servers take.
	DefaultMaxBytes = 10 << 20
)

// NewJob makes a job for the sink of that name. It refuses what Validate
// refuses, so that a mail that can't be sent fails in the transaction that
// writes it. The caller may set Tenant, CorrelationID, DedupKey, Priority and
// the like; ID must stay empty: the ledger knows the mail by its job's id.
func NewJob(sink string, m Message) (core.Job, error) {
	if err := m.Validate(); err != nil {
		return core.Job{}, err
	}
	payload, err := json.Marshal(m)
	if err != nil {
		return core.Job{}, fmt.Errorf("encoding a mail: %w", err)
	}
	return core.Job{Sink: sink, Event: core.Event{
		Aggregate: "mail", Type: EventType, ContentType: ContentType, Payload: payload,
	}}, nil
}

// Decode reads the payload of a job. It refuses fields that it doesn't know, so
// that a misspelt one isn't left out of the mail, and what Validate refuses.
func Decode(payload []byte) (Message, error) {
	var m Message
	d := json.NewDecoder(bytes.NewReader(payload))
	d.DisallowUnknownFields()
	if err := d.Decode(&m); err != nil {
		return Message{}, fmt.Errorf("reading a mail: %w", undisclosed(err))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Message{}, errors.New("reading a mail: something follows the JSON object")
	}
	if err := m.Validate(); err != nil {
		return Message{}, err
	}
	return m, nil
}

// undisclosed is a decoder's error without the value that it may quote.
func undisclosed(err error) error {
	if t, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("%s is a JSON %s, want %s", t.Field, kindOf(t.Value), t.Type)
	}
	return err
}

// kindOf cuts the literal off that stands behind some kinds: "number 1.5".
func kindOf(value string) string {
	kind, _, _ := bytes.Cut([]byte(value), []byte(" "))
	return string(kind)
}
