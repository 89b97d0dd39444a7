package aesgcm_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gooutbox/outbox/codec/aesgcm"
)

func TestKeysAreReadFromBase64(t *testing.T) {
	t.Parallel()
	secret := bytes.Repeat([]byte{0xfb, 0xff}, aesgcm.KeyBytes/2) // + and / in base64
	for _, text := range []string{
		base64.StdEncoding.EncodeToString(secret), base64.RawStdEncoding.EncodeToString(secret),
		base64.URLEncoding.EncodeToString(secret), base64.RawURLEncoding.EncodeToString(secret),
		" " + base64.StdEncoding.EncodeToString(secret) + "\r\n",
	} {
		key, err := aesgcm.ParseKey(text)
		require.NoError(t, err)
		require.Equal(t, base64.StdEncoding.EncodeToString(secret), key.Encode())
	}
}

func TestAWrongKeyIsRefusedWithoutBeingShown(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                         "a key has 0 bytes: want 32",
		"c2hvcnQ":                  "a key has 5 bytes: want 32",
		strings.Repeat("QUJD", 11): "a key has 33 bytes: want 32",
		"c4n4ry!":                  "a key is not base64: make one by openssl rand -base64 32",
		"QUJD\nREVG":               "a key is not base64: make one by openssl rand -base64 32",
		"QUJDQUJDQUJDQUJDQUJDQUJDQUJDQUJDQUJDQUJDQUJ=": "a key is not base64: make one by openssl rand -base64 32",
	} {
		_, err := aesgcm.ParseKey(text)
		require.EqualError(t, err, want)
	}
}

func TestAWrongRingIsRefusedWithAllItsProblems(t *testing.T) {
	t.Parallel()
	key := aesgcm.GenerateKey()
	for want, cfg := range map[string]aesgcm.Config{
		"Keys is empty: make one by openssl rand -base64 32\nPrimary is empty: name the key that seals": {},
		`Primary is "b", which is none of Keys`:                                                         {Keys: map[string]aesgcm.Key{"a": key}, Primary: "b"},
		"Keys.b is the same key as a: a rotation needs a new one":                                       {Keys: map[string]aesgcm.Key{"a": key, "b": key}, Primary: "a"},
		"Keys.b is no key": {Keys: map[string]aesgcm.Key{"a": key, "b": {}}, Primary: "a"},
		`Keys has the id "a b": want 1 to 64 letters, digits, dots, dashes or underscores`: {Keys: map[string]aesgcm.Key{"a": key, "a b": aesgcm.GenerateKey()}, Primary: "a"},
	} {
		_, err := aesgcm.New(cfg)
		require.EqualError(t, err, "checking the key ring: "+want)
	}
}

func TestTheCallersBytesAreNotKept(t *testing.T) {
	t.Parallel()
	secret := bytes.Repeat([]byte{1}, aesgcm.KeyBytes)
	key, err := aesgcm.NewKey(secret)
	require.NoError(t, err)
	before := key.Encode()
	clear(secret)
	require.Equal(t, before, key.Encode())
}

// holder holds keys where fmt doesn't ask their methods.
type holder struct {
	key   aesgcm.Key
	keys  []aesgcm.Key
	ring  map[string]aesgcm.Key
	codec *aesgcm.Codec
	cfg   aesgcm.Config
}

// TestNothingShowsAKey prints all that holds one in every way.
func TestNothingShowsAKey(t *testing.T) {
	t.Parallel()
	secret := []byte("c4n4ry-c4n4ry-c4n4ry-c4n4ry-c4n4")
	key, err := aesgcm.NewKey(secret)
	require.NoError(t, err)
	cfg := aesgcm.Config{Keys: map[string]aesgcm.Key{"k": key}, Primary: "k"}
	codec, err := aesgcm.New(cfg)
	require.NoError(t, err)
	held := holder{key: key, keys: []aesgcm.Key{key}, ring: cfg.Keys, codec: codec, cfg: cfg}
	forms := []string{
		"c4n4ry", fmt.Sprintf("%x", secret[:4]), fmt.Sprintf("%X", secret[:4]),
		strings.Trim(fmt.Sprintf("%d", secret[:4]), "[]"), strings.TrimSuffix(strings.TrimPrefix(fmt.Sprintf("%#v", secret[:4]), "[]byte{"), "}"),
		base64.StdEncoding.EncodeToString(secret)[:8],
		// as words of four bytes, which is how a cipher keeps it
		strconv.Itoa(int(binary.BigEndian.Uint32(secret))), strconv.Itoa(int(binary.LittleEndian.Uint32(secret))),
	}
	for _, value := range []any{key, &key, cfg, &cfg, codec, *codec, held, &held, []any{key, held}, struct{ K any }{key}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%o", "%b", "%c", "%U", "%t", "%T"} {
			refuseForms(t, fmt.Sprintf(verb, value), forms)
		}
		text, err := json.Marshal(value)
		if err == nil {
			refuseForms(t, string(text), forms)
		}
		for _, handler := range []func(*bytes.Buffer) slog.Handler{
			func(b *bytes.Buffer) slog.Handler { return slog.NewTextHandler(b, nil) },
			func(b *bytes.Buffer) slog.Handler { return slog.NewJSONHandler(b, nil) },
		} {
			var log bytes.Buffer
			slog.New(handler(&log)).Info("x", "value", value)
			refuseForms(t, log.String(), forms)
		}
	}
	require.Equal(t, "(hidden)", fmt.Sprint(key))
	require.Equal(t, "aes-256-gcm k of k", fmt.Sprintf("%+v", codec))
}

func refuseForms(t *testing.T, shown string, forms []string) {
	t.Helper()
	for _, form := range forms {
		require.NotContains(t, shown, form)
	}
}
