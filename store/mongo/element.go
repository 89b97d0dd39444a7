package mongo

import (
	"bytes"
	"encoding/binary"
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// errMalformed tells that bytes are no BSON document. A server never stores
// such.
var errMalformed = errors.New("the document is not valid BSON")

// elements walks the elements of one document without allocating. Its names and
// values point into the document.
type elements struct {
	rest []byte
	// name and value are those of the element that next found.
	name  []byte
	value bson.RawValue
	err   error
}

// walk starts at the first element of a document or array.
func walk(doc []byte) elements {
	if len(doc) < 5 || int(binary.LittleEndian.Uint32(doc)) != len(doc) || doc[len(doc)-1] != 0 {
		return elements{err: errMalformed}
	}
	return elements{rest: doc[4 : len(doc)-1]}
}

// next goes to the next element. It returns false at the end and on an error.
func (e *elements) next() bool {
	if e.err != nil || len(e.rest) == 0 {
		return false
	}
	typ := bson.Type(e.rest[0])
	end := bytes.IndexByte(e.rest[1:], 0)
	if end < 0 {
		e.err = errMalformed
		return false
	}
	e.name = e.rest[1 : 1+end]
	body := e.rest[2+end:]
	n := valueLength(typ, body)
	if n < 0 || n > len(body) {
		e.err = errMalformed
		return false
	}
	e.value = bson.RawValue{Type: typ, Value: body[:n:n]}
	e.rest = body[n:]
	return true
}

// valueLength is how many bytes the value at the start of b takes, or -1.
func valueLength(typ bson.Type, b []byte) int {
	prefixed := func(extra int) int {
		if len(b) < 4 {
			return -1
		}
		n := int(int32(binary.LittleEndian.Uint32(b))) //nolint:gosec // BSON lengths are int32
		if n < 0 {
			return -1
		}
		return n + extra
	}
	switch typ {
	case bson.TypeNull, bson.TypeUndefined, bson.TypeMinKey, bson.TypeMaxKey:
		return 0
	case bson.TypeBoolean:
		return 1
	case bson.TypeInt32:
		return 4
	case bson.TypeDouble, bson.TypeDateTime, bson.TypeTimestamp, bson.TypeInt64:
		return 8
	case bson.TypeObjectID:
		return 12
	case bson.TypeDecimal128:
		return 16
	case bson.TypeString, bson.TypeSymbol, bson.TypeJavaScript:
		return prefixed(4)
	case bson.TypeEmbeddedDocument, bson.TypeArray, bson.TypeCodeWithScope:
		return prefixed(0)
	case bson.TypeBinary:
		return prefixed(5)
	case bson.TypeDBPointer:
		return prefixed(16)
	case bson.TypeRegex:
		pattern := bytes.IndexByte(b, 0)
		if pattern < 0 {
			return -1
		}
		flags := bytes.IndexByte(b[pattern+1:], 0)
		if flags < 0 {
			return -1
		}
		return pattern + flags + 2
	}
	return -1
}

// kindOf names a BSON type as people know it.
func kindOf(typ bson.Type) string {
	if typ == bson.TypeEmbeddedDocument {
		return "document"
	}
	return typ.String()
}

// bytesOf returns the bytes of a binary, without copying.
func bytesOf(v bson.RawValue) (subtype byte, data []byte, ok bool) {
	if v.Type != bson.TypeBinary || len(v.Value) < 5 {
		return 0, nil, false
	}
	subtype, data = v.Value[4], v.Value[5:]
	if subtype == bson.TypeBinaryBinaryOld {
		// The old generic subtype holds its length a second time.
		if len(data) < 4 || int(binary.LittleEndian.Uint32(data)) != len(data)-4 {
			return 0, nil, false
		}
		data = data[4:]
	}
	return subtype, data, true
}

// stringOf returns the bytes of a string or symbol, without copying.
func stringOf(v bson.RawValue) ([]byte, bool) {
	if v.Type != bson.TypeString && v.Type != bson.TypeSymbol {
		return nil, false
	}
	if len(v.Value) < 5 || v.Value[len(v.Value)-1] != 0 {
		return nil, false
	}
	return v.Value[4 : len(v.Value)-1], true
}
