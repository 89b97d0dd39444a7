package mongo

import (
	"math"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Documents are also written by hand and by other programs. One field of a wrong
// type must not fail a command that is about other documents, too: what the
// server computes with is read as leniently as decodeJob reads it.

// countIn is a field's count in an expression: 0 where it is none, as count32
// says.
func countIn(field string) bson.D {
	f := "$" + field
	return op("$cond", bson.A{
		op("$and", bson.A{
			op("$isNumber", f), op("$gte", bson.A{f, 0}), op("$lte", bson.A{f, math.MaxInt32}), op("$eq", bson.A{f, op("$trunc", f)}),
		}), f, 0,
	})
}

// dateIn is a field's date in an expression, and another value where it is none.
func dateIn(field string, otherwise any) bson.D {
	f := "$" + field
	return op("$cond", bson.A{op("$eq", bson.A{op("$type", f), "date"}), f, otherwise})
}

// textOrNone is a text, or empty where a value is none.
func textOrNone(v bson.RawValue) string {
	text, ok := textOf(v)
	if !ok {
		return ""
	}
	return text
}
