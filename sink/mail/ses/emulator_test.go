package ses

import (
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"net/mail"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sesv2"
	"github.com/stretchr/testify/require"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
)

// stored is what the emulator keeps of a mail.
type stored struct {
	ID           string   `json:"id"`
	Source       string   `json:"source"`
	Destinations []string `json:"destinations"`
	RawData      string   `json:"raw_data"`
}

// received asks the emulator for a mail.
func received(t *testing.T, endpoint, id string) stored {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, endpoint+"/moto-api/data.json", http.NoBody)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close() //nolint:errcheck // read only
	var all struct {
		SES struct{ RawMessage []stored } `json:"ses"`
	}
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&all))
	for _, m := range all.SES.RawMessage {
		if m.ID == id {
			return m
		}
	}
	t.Fatalf("the emulator has no mail %s among %d", id, len(all.SES.RawMessage))
	return stored{}
}

// TestTheEmulatorReceivesWhatTwoParsersReadBackEqual sends a mail with all that
// is apt to break, and reads what arrived by Go's parser and by Python's.
func TestTheEmulatorReceivesWhatTwoParsersReadBackEqual(t *testing.T) {
	t.Parallel()
	endpoint := servicetest.AWSEndpoint(t)
	tr := newTransport(t, endpoint, Config{})
	m := envelope()
	m.Sender = strings.ToLower(servicetest.Name(t)) + "@example.org"
	_, err := tr.client.CreateEmailIdentity(t.Context(), &sesv2.CreateEmailIdentityInput{EmailIdentity: aws.String(m.Sender)})
	require.NoError(t, err)
	subject := "🚀 " + strings.Repeat("ä", 300)
	body := ".\r\n..\r\nfrom here\r\n" + strings.Repeat("x", 990) + "\r\nGrüße\r\n"
	m.Message = []byte("From: " + m.Sender + "\r\nTo: ada@example.org\r\nSubject: " +
		strings.ReplaceAll(mime.BEncoding.Encode("utf-8", subject), " ", "\r\n ") +
		"\r\nMIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: 8bit\r\n\r\n" + body)

	results := tr.Send(t.Context(), m)
	require.Equal(t, core.Delivered, results[0].Outcome, results[0].Err)
	got := received(t, endpoint, results[0].Receipt)
	require.Equal(t, m.Sender, got.Source)
	require.Subset(t, got.Destinations, m.Recipients, "the emulator adds those of the header")

	parsed, err := mail.ReadMessage(strings.NewReader(got.RawData))
	require.NoError(t, err)
	text, err := new(mime.WordDecoder).DecodeHeader(parsed.Header.Get("Subject"))
	require.NoError(t, err)
	require.Equal(t, subject, text)
	content, err := io.ReadAll(parsed.Body)
	require.NoError(t, err)
	require.Equal(t, strings.ReplaceAll(body, "\r\n", "\n"), strings.ReplaceAll(string(content), "\r\n", "\n"))

	path := filepath.Join(t.TempDir(), "mail.eml")
	require.NoError(t, os.WriteFile(path, []byte(got.RawData), 0o600))
	out, err := exec.CommandContext(t.Context(), "python3", "testdata/parse.py", path).Output()
	require.NoError(t, err)
	var other struct{ Subject, Body string }
	require.NoError(t, json.Unmarshal(out, &other))
	require.Equal(t, subject, other.Subject)
	require.Equal(t, strings.ReplaceAll(body, "\r\n", "\n"), other.Body)
}

func TestAnIdentityThatIsNotVerifiedRejects(t *testing.T) {
	t.Parallel()
	m := envelope()
	m.Sender = strings.ToLower(servicetest.Name(t)) + "@nowhere.example.org"
	results := newTransport(t, servicetest.AWSEndpoint(t), Config{}).Send(t.Context(), m)
	require.Equal(t, core.Rejected, outcome(t, results), results[0].Err)
}
