package aesgcm

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/gooutbox/outbox/core"
)

// Name is Codec.Name: what a store writes beside each sealed payload.
const Name = "aes-256-gcm"

// MaxKeys bounds a ring.
const MaxKeys = 1000

// Config is a ring of keys.
type Config struct {
	// Keys by their ids. An id is 1 to 64 letters, digits, dots, dashes and
	// underscores; it is stored beside each payload and shown in messages, so it
	// is no secret. Never give an id to another key. At least one.
	Keys map[string]Key
	// Primary is the id of the key that seals. Required.
	Primary string
}

// Codec is a core.Codec. It is safe for use by several goroutines at once.
type Codec struct {
	primary string
	// ring holds functions for the same reason as Key does.
	ring map[string]func() cipher.AEAD
}

var _ core.Codec = (*Codec)(nil)

var keyID = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// Validate reports every problem at once, or nil. It names keys by their ids.
func (c Config) Validate() error {
	var errs []error
	problem := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	switch {
	case len(c.Keys) == 0:
		problem("Keys is empty: make one by openssl rand -base64 32")
	case len(c.Keys) > MaxKeys:
		problem("Keys has %d keys, limit %d", len(c.Keys), MaxKeys)
	}
	ids := map[[KeyBytes]byte]string{}
	for _, id := range slices.Sorted(maps.Keys(c.Keys)) {
		key := c.Keys[id]
		if !keyID.MatchString(id) {
			problem("Keys has the id %s: want 1 to 64 letters, digits, dots, dashes or underscores", show(id))
			continue
		}
		if key.reveal == nil {
			problem("Keys.%s is no key", id)
			continue
		}
		if other, twice := ids[key.reveal()]; twice {
			problem("Keys.%s is the same key as %s: a rotation needs a new one", id, other)
		}
		ids[key.reveal()] = id
	}
	if _, known := c.Keys[c.Primary]; !known {
		if c.Primary == "" {
			problem("Primary is empty: name the key that seals")
		} else {
			problem("Primary is %s, which is none of Keys", show(c.Primary))
		}
	}
	return errors.Join(errs...)
}

// New makes a codec. Its error is that of Config.Validate.
func New(cfg Config) (*Codec, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("checking the key ring: %w", err)
	}
	c := &Codec{primary: cfg.Primary, ring: make(map[string]func() cipher.AEAD, len(cfg.Keys))}
	for id, key := range cfg.Keys {
		secret := key.reveal()
		block, err := aes.NewCipher(secret[:])
		if err != nil {
			return nil, fmt.Errorf("making the cipher of key %s: %w", id, err)
		}
		aead, err := cipher.NewGCMWithRandomNonce(block)
		if err != nil {
			return nil, fmt.Errorf("making the cipher of key %s: %w", id, err)
		}
		c.ring[id] = func() cipher.AEAD { return aead }
	}
	return c, nil
}

// Name is Name.
func (*Codec) Name() string { return Name }

// Seal seals with the primary key. The sealed payload is 28 bytes longer.
func (c *Codec) Seal(_ context.Context, payload, additional []byte) (sealed []byte, keyID string, err error) {
	return c.ring[c.primary]().Seal(nil, nil, payload, additional), c.primary, nil
}

// Open opens what any key of the ring sealed. Its errors are marked as rejected:
// they match ErrAltered, or are a *MissingKeyError.
func (c *Codec) Open(_ context.Context, sealed, additional []byte, keyID string) ([]byte, error) {
	aead, known := c.ring[keyID]
	if !known {
		return nil, core.MarkRejected(&MissingKeyError{KeyID: keyID})
	}
	payload, err := aead().Open(nil, nil, sealed, additional)
	if err != nil {
		return nil, core.MarkRejected(fmt.Errorf("opening by key %s: %w", keyID, ErrAltered))
	}
	return payload, nil
}

// ErrAltered tells that a sealed payload isn't what Seal made for this event by
// the key of this id.
var ErrAltered = errors.New("the payload was altered, is another event's, or was sealed by another key under the same id")

// MissingKeyError tells that the key that sealed a payload is not in the ring.
type MissingKeyError struct {
	// KeyID as the document names it.
	KeyID string
}

func (e *MissingKeyError) Error() string {
	if e.KeyID == "" {
		return "the document names no key"
	}
	return "the key " + show(e.KeyID) + " is not in the key ring: add it and retry"
}

// show cuts and quotes what may be anything.
func show(id string) string {
	if len(id) > 64 {
		id = strings.ToValidUTF8(id[:64], "") + "…"
	}
	return fmt.Sprintf("%q", id)
}

// Format shows the ids of the keys only.
func (c *Codec) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.describe()) }

// LogValue shows the ids of the keys only.
func (c *Codec) LogValue() slog.Value { return slog.StringValue(c.describe()) }

func (c *Codec) describe() string {
	if c == nil {
		return Name
	}
	return Name + " " + c.primary + " of " + strings.Join(slices.Sorted(maps.Keys(c.ring)), ",")
}
