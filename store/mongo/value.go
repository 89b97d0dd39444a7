package mongo

import (
	"encoding/binary"
	"encoding/hex"
	"math"
	"strconv"
	"time"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// textOf reads a value that stands for a text: a string; an ObjectId as its 24
// hex digits; a UUID in canonical form; a whole number in decimal digits.
func textOf(v bson.RawValue) (string, bool) {
	switch v.Type {
	case bson.TypeString, bson.TypeSymbol:
		b, ok := stringOf(v)
		return string(b), ok
	case bson.TypeObjectID:
		return hex.EncodeToString(v.Value), len(v.Value) == 12
	case bson.TypeBinary:
		subtype, data, ok := bytesOf(v)
		if !ok || (subtype != bson.TypeBinaryUUID && subtype != bson.TypeBinaryUUIDOld) {
			return "", false
		}
		id, err := uuid.FromBytes(data)
		return id.String(), err == nil
	default:
		n, ok := wholeOf(v)
		return strconv.FormatInt(n, 10), ok
	}
}

// wholeOf reads a whole number of any numeric type.
func wholeOf(v bson.RawValue) (int64, bool) {
	switch v.Type {
	case bson.TypeInt32:
		if len(v.Value) != 4 {
			return 0, false
		}
		return int64(int32(binary.LittleEndian.Uint32(v.Value))), true //nolint:gosec // the stored bits
	case bson.TypeInt64:
		if len(v.Value) != 8 {
			return 0, false
		}
		return int64(binary.LittleEndian.Uint64(v.Value)), true //nolint:gosec // the stored bits
	case bson.TypeDouble:
		if len(v.Value) != 8 {
			return 0, false
		}
		f := math.Float64frombits(binary.LittleEndian.Uint64(v.Value))
		if f != math.Trunc(f) || math.Abs(f) >= 1<<63 {
			return 0, false
		}
		return int64(f), true
	case bson.TypeDecimal128:
		d, ok := v.Decimal128OK()
		if !ok {
			return 0, false
		}
		return wholeDecimal(d)
	}
	return 0, false
}

// wholeDecimal reads a decimal whose fraction is zero.
func wholeDecimal(d bson.Decimal128) (int64, bool) {
	big, exp, err := d.BigInt()
	if err != nil || !big.IsInt64() {
		return 0, false
	}
	n := big.Int64()
	for ; exp < 0 && n != 0; exp++ {
		if n%10 != 0 {
			return 0, false
		}
		n /= 10
	}
	for ; exp > 0 && n != 0; exp-- {
		if n > math.MaxInt64/10 || n < math.MinInt64/10 {
			return 0, false
		}
		n *= 10
	}
	return n, true
}

// momentOf reads a date, a server's timestamp or an RFC 3339 text.
func momentOf(v bson.RawValue) (time.Time, bool) {
	switch v.Type {
	case bson.TypeDateTime:
		if len(v.Value) != 8 {
			return time.Time{}, false
		}
		return time.UnixMilli(int64(binary.LittleEndian.Uint64(v.Value))).UTC(), true //nolint:gosec // the stored bits
	case bson.TypeTimestamp:
		t, _, ok := v.TimestampOK()
		return time.Unix(int64(t), 0).UTC(), ok
	case bson.TypeString:
		text, ok := stringOf(v)
		if !ok {
			return time.Time{}, false
		}
		t, err := time.Parse(time.RFC3339Nano, string(text))
		return t.UTC().Truncate(time.Millisecond), err == nil
	}
	return time.Time{}, false
}

// headerOf reads a header's value: what textOf reads, a truth value, a date in
// RFC 3339, a fraction.
func headerOf(v bson.RawValue) (string, bool) {
	switch v.Type {
	case bson.TypeBoolean:
		b, ok := v.BooleanOK()
		return strconv.FormatBool(b), ok
	case bson.TypeDateTime:
		t, ok := momentOf(v)
		return t.Format(time.RFC3339Nano), ok
	}
	if text, ok := textOf(v); ok {
		return text, true
	}
	switch v.Type {
	case bson.TypeDouble:
		f, ok := v.DoubleOK()
		return strconv.FormatFloat(f, 'g', -1, 64), ok
	case bson.TypeDecimal128:
		d, ok := v.Decimal128OK()
		return d.String(), ok
	}
	return "", false
}

// jsonOf writes a document or array as JSON: plain where JSON has the type,
// relaxed Extended JSON where it hasn't, such as {"$oid": …} for an ObjectId and
// {"$date": …} for a date. Numbers are plain: an int64 keeps all its digits, and
// a double that is whole keeps its fraction, as in 1.0.
func jsonOf(v bson.RawValue) ([]byte, error) {
	if v.Type == bson.TypeEmbeddedDocument {
		return bson.MarshalExtJSON(bson.Raw(v.Value), false, false)
	}
	const before, after = `{"v":`, `}`
	text, err := bson.MarshalExtJSON(bson.D{{Key: "v", Value: v}}, false, false)
	if err != nil {
		return nil, err
	}
	return text[len(before) : len(text)-len(after)], nil
}
