package mail

import (
	"bytes"
	"encoding/base64"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net/mail"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var testOrigin = origin{id: "0190-job", at: time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC), maxBytes: DefaultMaxBytes}

// rich uses every field.
func rich() (*Message, content) {
	m := &Message{
		From: "Jürgen Müller <jm@bücher.example>", To: []string{"Ada <ada@example.org>", "bo@example.org"},
		Cc: []string{"ADA@example.org", "cy@example.net"}, Bcc: []string{"secret@example.org"}, ReplyTo: []string{"help@example.org"},
		Headers:     map[string]string{"X-Order": "7", "X-Note": "grüße " + strings.Repeat("word ", 60)},
		Inline:      []Attachment{{Name: "logo.png", Type: "image/png", ID: "logo", Content: []byte{1, 2, 3}}},
		Attachments: []Attachment{{Name: "Rechnung für März – 1.pdf", Type: "application/pdf", Content: bytes.Repeat([]byte("pdf"), 5000)}},
		Unsubscribe: &Unsubscribe{URL: "https://example.org/u/1", Mail: "u@example.org"},
	}
	c := content{
		subject: "🎉 " + strings.Repeat("ü", 300) + " end",
		text:    "line\n.\n..\n" + strings.Repeat("long ", 500) + "\nGrüße\n",
		html:    `<p>Grüße <img src="cid:logo"></p>` + strings.Repeat("x", 2000),
	}
	m.Subject, m.Text, m.HTML = c.subject, c.text, c.html
	return m, c
}

func TestEveryAttemptHasTheSameBytes(t *testing.T) {
	t.Parallel()
	m, c := rich()
	require.NoError(t, m.Validate())
	first, err := build(m, c, testOrigin)
	require.NoError(t, err)
	for range 20 {
		again, err := build(m, c, testOrigin)
		require.NoError(t, err)
		require.Equal(t, first.hash, again.hash)
		require.Equal(t, string(first.message), string(again.message))
	}
	// Pinned: another library or rule would make the attempts of a mail that
	// waits differ.
	require.Equal(t, "161155dd4e270cd90b971fe95f01dfed0bee47a0854e6b113ab79ace961bf784", first.hash)
	other := testOrigin
	other.id = "0190-other"
	second, err := build(m, c, other)
	require.NoError(t, err)
	require.NotEqual(t, first.messageID, second.messageID)
	require.NotEqual(t, first.hash, second.hash)
}

// leaf is a part that was read back.
type leaf struct {
	kind, disposition, name, id string
	body                        string
}

// leaves reads a mail back with the standard library's parsers.
func leaves(t *testing.T, contentType, encoding string, header func(string) string, body io.Reader) []leaf {
	t.Helper()
	kind, p, err := mime.ParseMediaType(contentType)
	require.NoError(t, err)
	if strings.HasPrefix(kind, "multipart/") {
		var all []leaf
		r := multipart.NewReader(body, p["boundary"])
		for {
			part, err := r.NextRawPart()
			if err == io.EOF {
				return all
			}
			require.NoError(t, err)
			all = append(all, leaves(t, part.Header.Get("Content-Type"), part.Header.Get("Content-Transfer-Encoding"), part.Header.Get, part)...)
		}
	}
	switch encoding {
	case "quoted-printable":
		body = quotedprintable.NewReader(body)
	case "base64":
		body = base64.NewDecoder(base64.StdEncoding, body)
	default:
		t.Fatalf("encoding %q", encoding)
	}
	text, err := io.ReadAll(body)
	require.NoError(t, err)
	disposition, q, _ := mime.ParseMediaType(header("Content-Disposition"))
	return []leaf{{kind, disposition, q["filename"], header("Content-Id"), string(text)}}
}

func TestWhatIsBuiltIsReadBackEqual(t *testing.T) {
	t.Parallel()
	m, c := rich()
	b, err := build(m, c, testOrigin)
	require.NoError(t, err)
	require.Equal(t, []string{"ada@example.org", "bo@example.org", "cy@example.net", "secret@example.org"}, b.recipients)
	require.Equal(t, "jm@xn--bcher-kva.example", b.sender)
	require.False(t, b.smtpUTF8)
	require.NotContains(t, string(b.message), "secret@")
	require.NotContains(t, strings.ToLower(string(b.message)), "bcc:")

	read, err := mail.ReadMessage(bytes.NewReader(b.message))
	require.NoError(t, err)
	h := read.Header
	subject, err := new(mime.WordDecoder).DecodeHeader(h.Get("Subject"))
	require.NoError(t, err)
	require.Equal(t, c.subject, subject)
	from, err := h.AddressList("From")
	require.NoError(t, err)
	require.Equal(t, []*mail.Address{{Name: "Jürgen Müller", Address: "jm@xn--bcher-kva.example"}}, from)
	to, err := h.AddressList("To")
	require.NoError(t, err)
	require.Len(t, to, 2)
	cc, err := h.AddressList("Cc")
	require.NoError(t, err)
	require.Len(t, cc, 2)
	at, err := h.Date()
	require.NoError(t, err)
	require.True(t, at.Equal(testOrigin.at))
	require.Equal(t, "<"+b.messageID+">", h.Get("Message-Id"))
	require.Equal(t, "<https://example.org/u/1>, <mailto:u@example.org>", h.Get("List-Unsubscribe"))
	require.Equal(t, "List-Unsubscribe=One-Click", h.Get("List-Unsubscribe-Post"))
	note, err := new(mime.WordDecoder).DecodeHeader(h.Get("X-Note"))
	require.NoError(t, err)
	require.Equal(t, strings.TrimSpace(m.Headers["X-Note"]), strings.TrimSpace(note))

	parts := leaves(t, h.Get("Content-Type"), h.Get("Content-Transfer-Encoding"), h.Get, read.Body)
	require.Len(t, parts, 4)
	require.Equal(t, strings.ReplaceAll(c.text, "\n", "\r\n"), parts[0].body)
	require.Equal(t, leaf{kind: "text/html", body: c.html}, parts[1])
	require.Equal(t, leaf{"image/png", "inline", "logo.png", "<logo>", "\x01\x02\x03"}, parts[2])
	require.Equal(t, leaf{"application/pdf", "attachment", "Rechnung für März – 1.pdf", "", strings.Repeat("pdf", 5000)}, parts[3])
}
