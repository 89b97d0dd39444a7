package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gooutbox/outbox/codec/aesgcm"
)

// withCodec is the least configuration with these options of a codec.
func withCodec(options string) string {
	return strings.Replace(least, "database: shop", "database: shop, codec: "+options, 1)
}

func TestACodecIsReadStrictly(t *testing.T) {
	t.Parallel()
	one, two := aesgcm.GenerateKey().Encode(), aesgcm.GenerateKey().Encode()
	for options, want := range map[string]string{
		`{type: aes-gcm}`: "store.mongodb.codec.keys: is missing",
		`{type: xor, primary: a, keys: {a: "` + one + `"}}`:                               "store.mongodb.codec.type: must be one of aes-gcm",
		`{type: aes-gcm, primary: b, keys: {a: "` + one + `"}}`:                           `store.mongodb.codec.primary: is "b", which is none of Keys`,
		`{type: aes-gcm, primary: a, keys: {a: "` + one[:20] + `"}}`:                      "store.mongodb.codec.keys.a: a key has 15 bytes: want 32",
		`{type: aes-gcm, primary: a, keys: {a: "c4n4ry-c4n4ry!"}}`:                        "store.mongodb.codec.keys.a: a key is not base64",
		`{type: aes-gcm, primary: a, keys: {a: "` + one + `", b: "` + one + `"}}`:         "store.mongodb.codec.keys.b: is the same key as a",
		`{type: aes-gcm, primary: a, key: x, keys: {a: "` + one + `", b: "` + two + `"}}`: `store.mongodb.codec.key: unknown key, did you mean "keys"?`,
	} {
		status, stdout, stderr := outbox(t, "config", "-c", configFile(t, withCodec(options)))
		require.Equal(t, exitUsage, status, stderr)
		require.Empty(t, stdout)
		require.Contains(t, stderr, want)
		for _, secret := range []string{one, one[:20], two, "c4n4ry"} {
			require.NotContains(t, stderr, secret)
		}
	}
}

func TestTheKeysOfACodecAreNotShown(t *testing.T) {
	t.Parallel()
	one, two := aesgcm.GenerateKey().Encode(), aesgcm.GenerateKey().Encode()
	status, stdout, stderr := outbox(t, "config", "-c", configFile(t, withCodec(`{type: aes-gcm, primary: b, keys: {a: "`+one+`", b: "`+two+`"}}`)))
	require.Equal(t, exitOK, status, stderr)
	require.Contains(t, stdout, "primary: b")
	require.Contains(t, stdout, "a: (hidden)")
	require.NotContains(t, stdout, one)
	require.NotContains(t, stdout, two)
}
