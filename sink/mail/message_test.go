package mail

import (
	"bytes"
	"encoding/json"
	"net/mail"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatCanNotBeSentIsRefusedWithItsField(t *testing.T) {
	t.Parallel()
	ok := func() Message { return Message{To: []string{"ada@example.org"}, Subject: "s", Text: "t"} }
	m := ok()
	require.NoError(t, m.Validate())
	many := make([]string, MaxRecipients+1)
	for i := range many {
		many[i] = "a@example.org"
	}
	for name, c := range map[string]struct {
		field  string
		change func(*Message)
	}{
		"no recipient":           {"to ", func(m *Message) { m.To = nil }},
		"too many recipients":    {"to ", func(m *Message) { m.Bcc = many }},
		"line break in address":  {"to[0] ", func(m *Message) { m.To = []string{"ada@example.org\r\nBcc: x@y.example"} }},
		"line break in name":     {"from ", func(m *Message) { m.From = "Ada\n <ada@example.org>" }},
		"encoded line break":     {"cc[0] ", func(m *Message) { m.Cc = []string{"=?utf-8?q?a=0D=0Ab?= <ada@example.org>"} }},
		"two in one":             {"to[0] ", func(m *Message) { m.To = []string{"a@example.org, b@example.org"} }},
		"group":                  {"to[0] ", func(m *Message) { m.To = []string{"all: a@example.org;"} }},
		"quoted local part":      {"to[0] ", func(m *Message) { m.To = []string{`"a@evil.example"@example.org`} }},
		"domain literal":         {"to[0] ", func(m *Message) { m.To = []string{"a@[127.0.0.1]"} }},
		"no domain":              {"bcc[1] ", func(m *Message) { m.Bcc = []string{"a@example.org", "a"} }},
		"no dot":                 {"to[0] ", func(m *Message) { m.To = []string{"a@example"} }},
		"bad domain":             {"to[0] ", func(m *Message) { m.To = []string{"a@-x-.example"} }},
		"long local part":        {"to[0] ", func(m *Message) { m.To = []string{strings.Repeat("a", 65) + "@example.org"} }},
		"reply to":               {"reply_to[0] ", func(m *Message) { m.ReplyTo = []string{"nobody"} }},
		"line break in subject":  {"subject ", func(m *Message) { m.Subject = "a\r\nBcc: x@y.example" }},
		"separator in subject":   {"subject ", func(m *Message) { m.Subject = "a\u2028b" }},
		"NUL in text":            {"text ", func(m *Message) { m.Text = "a\x00" }},
		"escape in html":         {"html ", func(m *Message) { m.HTML = "\x1b[0m" }},
		"not UTF-8":              {"text ", func(m *Message) { m.Text = "a\xff" }},
		"no body":                {"text ", func(m *Message) { m.Text = "" }},
		"header with break":      {`headers["X-A"] `, func(m *Message) { m.Headers = map[string]string{"X-A": "a\nb"} }},
		"header name":            {`headers["X: A"] `, func(m *Message) { m.Headers = map[string]string{"X: A": "a"} }},
		"Bcc as header":          {`headers["bCC"] `, func(m *Message) { m.Headers = map[string]string{"bCC": "x@y.example"} }},
		"Resent-To as header":    {`headers["Resent-To"] `, func(m *Message) { m.Headers = map[string]string{"Resent-To": "x@y.example"} }},
		"long word in header":    {`headers["X-A"] `, func(m *Message) { m.Headers = map[string]string{"X-A": strings.Repeat("a", 900)} }},
		"tag":                    {`tags["a b"] `, func(m *Message) { m.Tags = map[string]string{"a b": "c"} }},
		"file without a name":    {"attachments[0].name ", func(m *Message) { m.Attachments = []Attachment{{}} }},
		"file with a path":       {"attachments[0].name ", func(m *Message) { m.Attachments = []Attachment{{Name: "../a"}} }},
		"file with a break":      {"attachments[0].name ", func(m *Message) { m.Attachments = []Attachment{{Name: "a\r\nb"}} }},
		"file's type":            {"attachments[0].type ", func(m *Message) { m.Attachments = []Attachment{{Name: "a", Type: "x\r\ny"}} }},
		"multipart file":         {"attachments[0].type ", func(m *Message) { m.Attachments = []Attachment{{Name: "a", Type: "multipart/mixed; boundary=x"}} }},
		"inline without html":    {"inline ", func(m *Message) { m.Inline = []Attachment{{Name: "a", ID: "a"}} }},
		"inline id":              {"inline[0].id ", func(m *Message) { m.HTML, m.Inline = "h", []Attachment{{Name: "a", ID: "a>b"}} }},
		"too large once encoded": {"the mail ", func(m *Message) { m.Attachments = []Attachment{{Name: "a", Content: make([]byte, 8<<20)}} }},
		"unsubscribe in clear":   {"unsubscribe.url ", func(m *Message) { m.Unsubscribe = &Unsubscribe{URL: "http://x.example"} }},
		"unsubscribe with break": {"unsubscribe.url ", func(m *Message) { m.Unsubscribe = &Unsubscribe{URL: "https://x.example/\r\nA: b"} }},
		"unsubscribe mail":       {"unsubscribe.mail ", func(m *Message) { m.Unsubscribe = &Unsubscribe{Mail: "x"} }},
		"template and text":      {"subject ", func(m *Message) { m.Template = "t" }},
		"template name":          {"template ", func(m *Message) { *m = Message{To: m.To, Template: "../x"} }},
		"locale":                 {"locale ", func(m *Message) { *m = Message{To: m.To, Template: "t", Locale: "d e"} }},
		"data that is no object": {"data ", func(m *Message) { *m = Message{To: m.To, Template: "t", Data: json.RawMessage(`[1]`)} }},
		"control character in it": {"data.a[0].b ", func(m *Message) {
			*m = Message{To: m.To, Template: "t", Data: json.RawMessage(`{"a":[{"b":"\u0000"}]}`)}
		}},
	} {
		m := ok()
		c.change(&m)
		_, err := NewJob("mail", m)
		require.ErrorIs(t, err, ErrInvalidMessage, name)
		require.ErrorContains(t, err, c.field, name)
		require.NotContains(t, err.Error(), "y.example", "values stay out of errors")
	}
}

func TestInternationalAddresses(t *testing.T) {
	t.Parallel()
	a, err := parseAddress("Jürgen <j@Bücher.EXAMPLE>")
	require.NoError(t, err)
	require.Equal(t, &mail.Address{Name: "Jürgen", Address: "j@xn--bcher-kva.example"}, a)
	m := Message{From: "a@example.org", To: []string{"grüße@例え.テスト"}, Subject: "s", Text: "t"}
	b, err := build(&m, content{subject: "s", text: "t"}, testOrigin)
	require.NoError(t, err)
	require.True(t, b.smtpUTF8)
	require.Equal(t, []string{"grüße@xn--r8jz45g.xn--zckzah"}, b.recipients)
	require.Contains(t, string(b.message), "To: <grüße@xn--r8jz45g.xn--zckzah>\r\n", "header and envelope agree")
}

func TestBlindCopiesAloneAreNotNamed(t *testing.T) {
	t.Parallel()
	m := Message{From: "a@example.org", Bcc: []string{"hidden@example.org"}, Subject: "s", Text: "t"}
	b, err := build(&m, content{subject: "s", text: "t"}, testOrigin)
	require.NoError(t, err)
	require.NotContains(t, string(b.message), "hidden")
	require.Equal(t, []string{"hidden@example.org"}, b.recipients)
}

func TestUnknownFieldsAreRefused(t *testing.T) {
	t.Parallel()
	for _, payload := range []string{
		`{"to":["a@example.org"],"subject":"s","text":"t","bccs":["b@example.org"]}`,
		`{"to":["a@example.org"],"subject":"s","text":"t"} {}`, `[]`, `null`, ``, `{"to":"a@example.org"}`,
	} {
		_, err := Decode([]byte(payload))
		require.Error(t, err, payload)
	}
}

// FuzzMessage looks for a payload that is accepted and whose mail then has other
// recipients, a blind copy in its header, or a header that its fields don't have.
func FuzzMessage(f *testing.F) {
	m, c := rich()
	m.Subject, m.Text, m.HTML = c.subject, c.text, c.html
	payload, err := json.Marshal(m)
	require.NoError(f, err)
	f.Add(payload)
	f.Add([]byte(`{"from":"A B <a@example.org>","to":["a@example.org"],"bcc":["blind@example.org"],"subject":"s","html":"<p>"}`))
	f.Add([]byte(`{"from":"a@example.org","to":["\"x\" <a@example.org>"],"subject":"s","text":"t","headers":{"X-A":"b c"},"tags":{"a":"b"}}`))
	f.Fuzz(func(t *testing.T, payload []byte) {
		m, err := Decode(payload)
		if err != nil || m.Template != "" || m.From == "" {
			return
		}
		b, err := build(&m, content{subject: m.Subject, text: m.Text, html: m.HTML}, testOrigin)
		if err != nil {
			return
		}
		read, err := mail.ReadMessage(bytes.NewReader(b.message))
		require.NoError(t, err)
		allowed := map[string]bool{
			"From": true, "To": true, "Cc": true, "Reply-To": true, "Subject": true, "Date": true, "Message-Id": true, "Mime-Version": true,
			"Content-Type": true, "Content-Transfer-Encoding": true, "List-Unsubscribe": true, "List-Unsubscribe-Post": true,
		}
		for name := range m.Headers {
			allowed[canonical(name)] = true
		}
		for name, values := range read.Header {
			require.True(t, allowed[name], "%q", name)
			require.Len(t, values, 1, "%q", name)
		}
		named := map[string]bool{}
		for _, field := range []string{"To", "Cc"} {
			if value := read.Header.Get(field); value != "" && value != "undisclosed-recipients:;" {
				list, err := read.Header.AddressList(field)
				require.NoError(t, err)
				for _, a := range list {
					named[a.Address] = true
				}
			}
		}
		require.LessOrEqual(t, len(b.recipients), len(m.To)+len(m.Cc)+len(m.Bcc))
		for _, list := range [][]string{m.To, m.Cc} {
			for _, s := range list {
				a, err := parseAddress(s)
				require.NoError(t, err)
				require.True(t, named[a.Address], "the header lacks a recipient")
				delete(named, a.Address)
				named[a.Address] = true
			}
		}
		require.LessOrEqual(t, len(named), len(m.To)+len(m.Cc))
	})
}

// canonical is a field's name as net/mail has it.
func canonical(name string) string {
	read, err := mail.ReadMessage(strings.NewReader(name + ": x\r\n\r\n"))
	if err != nil {
		return ""
	}
	for key := range read.Header {
		return key
	}
	return ""
}
