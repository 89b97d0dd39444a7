package aesgcm_test

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gooutbox/outbox/codec/aesgcm"
	"github.com/gooutbox/outbox/core"
)

func ring(t testing.TB, primary string, keys map[string]aesgcm.Key) *aesgcm.Codec {
	t.Helper()
	codec, err := aesgcm.New(aesgcm.Config{Keys: keys, Primary: primary})
	require.NoError(t, err)
	return codec
}

func seal(t testing.TB, codec core.Codec, payload, id string) ([]byte, string) {
	t.Helper()
	sealed, key, err := codec.Seal(t.Context(), []byte(payload), []byte(id))
	require.NoError(t, err)
	return sealed, key
}

func TestWhatWasSealedOpens(t *testing.T) {
	t.Parallel()
	codec := ring(t, "k", map[string]aesgcm.Key{"k": aesgcm.GenerateKey()})
	for _, payload := range []string{"", "x", strings.Repeat("long ", 100_000)} {
		sealed, key := seal(t, codec, payload, "event-1")
		require.Equal(t, "k", key)
		require.Len(t, sealed, len(payload)+28)
		opened, err := codec.Open(t.Context(), sealed, []byte("event-1"), key)
		require.NoError(t, err)
		require.Equal(t, payload, string(opened))
	}
}

// TestTheFormIsTheDocumentedOne opens with the standard cipher what the codec
// sealed, and the other way round, as a program in another language would.
func TestTheFormIsTheDocumentedOne(t *testing.T) {
	t.Parallel()
	secret := bytes.Repeat([]byte{7}, aesgcm.KeyBytes)
	key, err := aesgcm.NewKey(secret)
	require.NoError(t, err)
	codec := ring(t, "k", map[string]aesgcm.Key{"k": key})
	block, err := aes.NewCipher(secret)
	require.NoError(t, err)
	plain, err := cipher.NewGCM(block)
	require.NoError(t, err)

	sealed, _ := seal(t, codec, "payload", "event-1")
	opened, err := plain.Open(nil, sealed[:12], sealed[12:], []byte("event-1"))
	require.NoError(t, err)
	require.Equal(t, "payload", string(opened))

	nonce := []byte("twelve bytes")
	foreign := plain.Seal(bytes.Clone(nonce), nonce, []byte("from elsewhere"), []byte("event-2"))
	opened, err = codec.Open(t.Context(), foreign, []byte("event-2"), "k")
	require.NoError(t, err)
	require.Equal(t, "from elsewhere", string(opened))
}

func TestTheSamePayloadIsSealedDifferentlyEachTime(t *testing.T) {
	t.Parallel()
	codec := ring(t, "k", map[string]aesgcm.Key{"k": aesgcm.GenerateKey()})
	seen := map[string]bool{}
	for range 1000 {
		sealed, _ := seal(t, codec, "payload", "event-1")
		require.False(t, seen[string(sealed[:12])], "a nonce came twice")
		seen[string(sealed[:12])] = true
	}
}

// TestARotationStopsNobody goes through its steps with a writer and a reader of
// each configuration that run side by side in it.
func TestARotationStopsNobody(t *testing.T) {
	t.Parallel()
	oldKey, newKey := aesgcm.GenerateKey(), aesgcm.GenerateKey()
	before := ring(t, "old", map[string]aesgcm.Key{"old": oldKey})
	both := ring(t, "old", map[string]aesgcm.Key{"old": oldKey, "new": newKey})
	switched := ring(t, "new", map[string]aesgcm.Key{"old": oldKey, "new": newKey})
	after := ring(t, "new", map[string]aesgcm.Key{"new": newKey})
	for _, side := range []struct {
		name    string
		codecs  []*aesgcm.Codec
		primary []string
	}{
		{"the new key is given out", []*aesgcm.Codec{before, both}, []string{"old", "old"}},
		{"the new key becomes primary", []*aesgcm.Codec{both, switched}, []string{"old", "new"}},
	} {
		for i, writer := range side.codecs {
			sealed, key := seal(t, writer, "payload", "e")
			require.Equal(t, side.primary[i], key, side.name)
			for _, reader := range side.codecs {
				opened, err := reader.Open(t.Context(), sealed, []byte("e"), key)
				require.NoError(t, err, side.name)
				require.Equal(t, "payload", string(opened))
			}
		}
	}
	sealed, key := seal(t, switched, "payload", "e")
	_, err := after.Open(t.Context(), sealed, []byte("e"), key)
	require.NoError(t, err)
}

func TestAKeyThatIsGoneRejectsWithItsID(t *testing.T) {
	t.Parallel()
	sealed, key := seal(t, ring(t, "2025", map[string]aesgcm.Key{"2025": aesgcm.GenerateKey()}), "payload", "e")
	_, err := ring(t, "2026", map[string]aesgcm.Key{"2026": aesgcm.GenerateKey()}).Open(t.Context(), sealed, []byte("e"), key)
	require.Equal(t, core.Rejected, core.ResultOf("", err).Outcome)
	var missing *aesgcm.MissingKeyError
	require.ErrorAs(t, err, &missing)
	require.Equal(t, "2025", missing.KeyID)
	require.EqualError(t, err, `the key "2025" is not in the key ring: add it and retry`)
}

func TestWhatWasAlteredIsRejected(t *testing.T) {
	t.Parallel()
	codec := ring(t, "k", map[string]aesgcm.Key{"k": aesgcm.GenerateKey(), "other": aesgcm.GenerateKey()})
	sealed, _ := seal(t, codec, "a secret payload", "event-1")
	refuse := func(why string, sealed []byte, id, key string) {
		opened, err := codec.Open(t.Context(), sealed, []byte(id), key)
		require.ErrorIs(t, err, aesgcm.ErrAltered, why)
		require.Equal(t, core.Rejected, core.ResultOf("", err).Outcome, why)
		require.Nil(t, opened, why)
		require.NotContains(t, err.Error(), "secret")
	}
	for bit := range len(sealed) * 8 {
		changed := bytes.Clone(sealed)
		changed[bit/8] ^= 1 << (bit % 8)
		refuse("a bit is another", changed, "event-1", "k")
	}
	for n := range sealed {
		refuse("it is cut", sealed[:n], "event-1", "k")
	}
	refuse("it is longer", append(bytes.Clone(sealed), 0), "event-1", "k")
	refuse("another event's", sealed, "event-2", "k")
	refuse("no event's", sealed, "", "k")
	refuse("another key's", sealed, "event-1", "other")
}

func TestManyMaySealAndOpenAtOnce(t *testing.T) {
	t.Parallel()
	codec := ring(t, "k", map[string]aesgcm.Key{"k": aesgcm.GenerateKey()})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 200 {
				sealed, key, err := codec.Seal(t.Context(), []byte("payload"), []byte("e"))
				if err != nil {
					t.Errorf("sealing: %v", err)
					return
				}
				if opened, err := codec.Open(t.Context(), sealed, []byte("e"), key); err != nil || string(opened) != "payload" {
					t.Errorf("opening: %q, %v", opened, err)
					return
				}
			}
		})
	}
	all.Wait()
}

func FuzzOpen(f *testing.F) {
	secret := bytes.Repeat([]byte{3}, aesgcm.KeyBytes)
	key, err := aesgcm.NewKey(secret)
	require.NoError(f, err)
	codec := ring(f, "k", map[string]aesgcm.Key{"k": key})
	block, err := aes.NewCipher(secret)
	require.NoError(f, err)
	plain, err := cipher.NewGCM(block)
	require.NoError(f, err)
	nonce := []byte("twelve bytes") // the same in all processes that fuzz
	sealed := plain.Seal(bytes.Clone(nonce), nonce, []byte("payload"), []byte("e"))
	f.Add(sealed, []byte("e"), "k")
	f.Add([]byte{}, []byte{}, "")
	f.Add(bytes.Repeat([]byte{1}, 40), []byte("e"), "\x00\xff")
	f.Fuzz(func(t *testing.T, data, additional []byte, id string) {
		// Nobody without the key makes anything that opens.
		if opened, err := codec.Open(t.Context(), data, additional, id); err == nil {
			if !bytes.Equal(data, sealed) || string(additional) != "e" || id != "k" {
				t.Fatalf("%x opened to %q", data, opened)
			}
		} else if core.ResultOf("", err).Outcome != core.Rejected {
			t.Fatalf("not rejected: %v", err)
		}
		// Whatever is sealed opens to the same.
		again, used, err := codec.Seal(t.Context(), data, additional)
		if err != nil {
			t.Fatal(err)
		}
		if opened, err := codec.Open(t.Context(), again, additional, used); err != nil || !bytes.Equal(opened, data) {
			t.Fatalf("%x became %x: %v", data, opened, err)
		}
	})
}
