package mailtest

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gooutbox/outbox/sink/mail"
)

// RunList runs the suite of a suppression list. Each test gets an empty one.
func RunList(t *testing.T, newList func(t *testing.T) mail.SuppressionList) {
	t.Helper()
	for name, run := range map[string]func(*testing.T, mail.SuppressionList){
		"an address is suppressed in any spelling": spelled,
		"an entry is renewed":                      renewed,
		"an entry ends":                            ends,
		"an address is taken off":                  removed,
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			run(t, newList(t))
		})
	}
}

func suppressed(t *testing.T, l mail.SuppressionList, addresses ...string) map[string]mail.Suppression {
	t.Helper()
	found, err := l.Suppressed(t.Context(), addresses)
	require.NoError(t, err)
	return found
}

func spelled(t *testing.T, l mail.SuppressionList) {
	require.Empty(t, suppressed(t, l, "ada@example.org"))
	require.Empty(t, suppressed(t, l))
	require.NoError(t, l.Add(t.Context()))
	require.NoError(t, l.Add(t.Context(), mail.Suppression{Address: " Ada@Example.org", Reason: mail.SuppressBounce, Detail: "$550"}))
	found := suppressed(t, l, "ADA@example.org", "bob@example.org", "ada@example.org")
	require.Len(t, found, 2)
	e := found["ADA@example.org"]
	require.Equal(t, mail.SuppressBounce, e.Reason)
	require.Equal(t, "$550", e.Detail)
	require.WithinDuration(t, time.Now(), e.Since, time.Minute)
	require.Zero(t, e.Until)
	require.Error(t, l.Add(t.Context(), mail.Suppression{Reason: mail.SuppressBounce}))
	require.Error(t, l.Add(t.Context(), mail.Suppression{Address: "a@example.org"}))
}

func renewed(t *testing.T, l mail.SuppressionList) {
	soon, late := time.Now().Add(time.Hour).Truncate(time.Millisecond), time.Now().Add(2*time.Hour).Truncate(time.Millisecond)
	add := func(reason mail.SuppressionReason, until time.Time) mail.Suppression {
		require.NoError(t, l.Add(t.Context(), mail.Suppression{Address: "ada@example.org", Reason: reason, Until: until}))
		return suppressed(t, l, "ada@example.org")["ada@example.org"]
	}
	first := add(mail.SuppressManual, late)
	require.True(t, late.Equal(first.Until))
	second := add(mail.SuppressBounce, soon)
	require.Equal(t, mail.SuppressBounce, second.Reason)
	require.True(t, late.Equal(second.Until), "the later end stays")
	require.True(t, first.Since.Equal(second.Since))
	require.Zero(t, add(mail.SuppressComplaint, time.Time{}).Until)
	require.Zero(t, add(mail.SuppressComplaint, late).Until, "for ever is the latest end")
}

func ends(t *testing.T, l mail.SuppressionList) {
	require.NoError(t, l.Add(t.Context(), mail.Suppression{Address: "past@example.org", Reason: mail.SuppressManual, Until: time.Now().Add(-time.Minute)}))
	require.Empty(t, suppressed(t, l, "past@example.org"))
	require.NoError(t, l.Add(t.Context(), mail.Suppression{Address: "past@example.org", Reason: mail.SuppressManual, Until: time.Now().Add(time.Minute)}))
	require.Len(t, suppressed(t, l, "past@example.org"), 1)
}

func removed(t *testing.T, l mail.SuppressionList) {
	require.NoError(t, l.Add(t.Context(), mail.Suppression{Address: "ada@example.org", Reason: mail.SuppressManual}))
	for _, want := range []bool{true, false} {
		was, err := l.Remove(t.Context(), "ADA@example.org")
		require.NoError(t, err)
		require.Equal(t, want, was)
		require.Empty(t, suppressed(t, l, "ada@example.org"))
	}
}
