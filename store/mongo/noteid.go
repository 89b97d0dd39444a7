package mongo

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// maxNotedID is the length in bytes up to which an event's _id is noted as it
// is. A longer one, of up to 16 MB, would not fit into a job twice, nor many of
// them into a query.
const maxNotedID = 1024

// hashedID begins what is noted in place of a longer _id.
const hashedID = "sha256:"

// noteOf is the form in which a job holds an event's _id: the _id itself, or
// the text "sha256:" and the hash of its BSON type and value in hex.
func noteOf(id bson.RawValue) bson.RawValue {
	if len(id.Value) <= maxNotedID {
		return id
	}
	sum := sha256.New()
	sum.Write([]byte{byte(id.Type)})
	sum.Write(id.Value)
	typ, value, err := bson.MarshalValue(hashedID + hex.EncodeToString(sum.Sum(nil)))
	if err != nil {
		return id // a string has a form
	}
	return bson.RawValue{Type: typ, Value: value}
}

// isHashedID tells that noteOf may have made this of a longer _id.
func isHashedID(note bson.RawValue) bool {
	text, ok := stringOf(note)
	return ok && len(text) == len(hashedID)+hex.EncodedLen(sha256.Size) && strings.HasPrefix(string(text), hashedID)
}

// longID matches documents whose _id noteOf replaces by a hash.
func longID() bson.D {
	// A document of the one field takes its value, a type byte, the name "i"
	// with its end, and five bytes.
	const around = 8
	return op("$expr", op("$gt", bson.A{op("$bsonSize", bson.D{{Key: "i", Value: "$_id"}}), maxNotedID + around}))
}
