package mongo

import (
	"encoding/binary"
	"encoding/hex"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// tokenTime is the cluster time that a resume token names. The server encodes
// it in the token's first bytes, so that tokens compare in its order: a byte
// that says "timestamp", and the timestamp. ok is false for a token of another
// form, whose place then is that of the event before it.
func tokenTime(token bson.Raw) (t bson.Timestamp, ok bool) {
	const timestampByte = 0x82
	els := walk(token)
	for els.next() {
		if string(els.name) != "_data" {
			continue
		}
		text, ok := stringOf(els.value)
		var start [9]byte
		if !ok || len(text) < hex.EncodedLen(len(start)) {
			return t, false
		}
		if _, err := hex.Decode(start[:], text[:hex.EncodedLen(len(start))]); err != nil || start[0] != timestampByte {
			return t, false
		}
		return bson.Timestamp{T: binary.BigEndian.Uint32(start[1:]), I: binary.BigEndian.Uint32(start[5:])}, true
	}
	return t, false
}
