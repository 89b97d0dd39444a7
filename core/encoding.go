package core

import (
	"context"
	"encoding/json"
	"fmt"
)

// Encoding turns Go values into payloads and back. JSONEncoding is the one that
// comes along; another format needs only these three methods. An Encoding is
// used by several goroutines at once.
type Encoding interface {
	// ContentType is the media type of what Marshal returns.
	ContentType() string
	// Marshal encodes v.
	Marshal(v any) ([]byte, error)
	// Unmarshal decodes data into v, a pointer.
	Unmarshal(data []byte, v any) error
}

// JSONEncoding encodes with encoding/json. Its zero value is ready for use.
type JSONEncoding struct{}

// ContentType is "application/json".
func (JSONEncoding) ContentType() string { return DefaultContentType }

// Marshal is json.Marshal.
func (JSONEncoding) Marshal(v any) ([]byte, error) { return json.Marshal(v) }

// Unmarshal is json.Unmarshal.
func (JSONEncoding) Unmarshal(data []byte, v any) error { return json.Unmarshal(data, v) }

// WithJSON returns e with value as its JSON payload.
func WithJSON(e Event, value any) (Event, error) { return WithPayload(e, JSONEncoding{}, value) }

// WithPayload returns e with value encoded as its payload, and the encoding's
// content type. The error names the event's type and the value's Go type,
// never the value.
func WithPayload(e Event, enc Encoding, value any) (Event, error) {
	data, err := enc.Marshal(value)
	if err != nil {
		return Event{}, fmt.Errorf("encoding the payload of %q from a %T: %w", e.Type, value, err)
	}
	e.Payload, e.ContentType = data, enc.ContentType()
	return e, nil
}

// Codec seals payloads before they are stored and opens them before they are
// delivered. A store without one keeps payloads as they are. A Codec is used by
// several goroutines at once.
type Codec interface {
	// Name is stored with each sealed payload, so that a reader knows what
	// opens it.
	Name() string
	// Seal returns the sealed payload and the id of the key that sealed it.
	// additional is authenticated with it but not stored: the event's id.
	Seal(ctx context.Context, payload, additional []byte) (sealed []byte, keyID string, err error)
	// Open returns what Seal was given. An error that no retry can cure, such
	// as a key that is gone, is marked by MarkRejected.
	Open(ctx context.Context, sealed, additional []byte, keyID string) ([]byte, error)
}
