package aesgcm

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// KeyBytes is the length of a key: AES-256.
const KeyBytes = 32

// hidden is what a key shows of itself.
const hidden = "(hidden)"

// Key is the secret of one entry of a ring. No formatting shows it, and it can't
// be encoded. The zero value is no key.
type Key struct {
	// reveal is a function because fmt asks no methods of what stands in other
	// structs' unexported fields, and follows pointers there where a verb is wrong.
	reveal func() [KeyBytes]byte
}

func keyOf(secret [KeyBytes]byte) Key { return Key{func() [KeyBytes]byte { return secret }} }

// GenerateKey makes a random key.
func GenerateKey() Key {
	var secret [KeyBytes]byte
	_, _ = rand.Read(secret[:]) // never fails
	return keyOf(secret)
}

// NewKey takes a copy of a key of KeyBytes bytes.
func NewKey(secret []byte) (Key, error) {
	if len(secret) != KeyBytes {
		return Key{}, fmt.Errorf("a key has %d bytes: want %d", len(secret), KeyBytes)
	}
	return keyOf([KeyBytes]byte(secret)), nil
}

// ParseKey reads a key of KeyBytes bytes in base64, with or without padding, in
// the standard or the URL alphabet, such as `openssl rand -base64 32` prints.
// Space around it is ignored.
func ParseKey(text string) (Key, error) {
	text = strings.TrimRight(strings.TrimSpace(text), "=")
	encoding := base64.RawStdEncoding
	if strings.ContainsAny(text, "-_") {
		encoding = base64.RawURLEncoding
	}
	secret, err := encoding.Strict().DecodeString(text)
	if err != nil || strings.ContainsAny(text, "\r\n") {
		return Key{}, errors.New("a key is not base64: make one by openssl rand -base64 32") // err tells of its characters
	}
	return NewKey(secret)
}

// Encode returns the key in base64, as ParseKey reads it: for the one who writes
// it to where keys are kept.
func (k Key) Encode() string {
	if k.reveal == nil {
		return ""
	}
	secret := k.reveal()
	return base64.StdEncoding.EncodeToString(secret[:])
}

// Format hides the key from every verb.
func (Key) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, hidden) }

// LogValue hides the key.
func (Key) LogValue() slog.Value { return slog.StringValue(hidden) }

// MarshalText hides the key: what it writes can't be read again.
func (Key) MarshalText() ([]byte, error) { return []byte(hidden), nil }
