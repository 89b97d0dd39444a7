package mongo

import (
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/gooutbox/outbox/core"
)

// timestampOf is the server's timestamp that a number of core.Position or a
// fence stands for.
func timestampOf(n uint64) bson.Timestamp {
	return bson.Timestamp{T: uint32(n >> 32), I: uint32(n)} //nolint:gosec // the two halves of n
}

// numberOf is the inverse of timestampOf. It keeps the order.
func numberOf(t bson.Timestamp) uint64 { return uint64(t.T)<<32 | uint64(t.I) }

// timeOf is the second of a server's timestamp.
func timeOf(t bson.Timestamp) time.Time { return time.Unix(int64(t.T), 0) }

// before is t less d, not below zero.
func before(t bson.Timestamp, d time.Duration) bson.Timestamp {
	seconds := int64((d + time.Second - 1) / time.Second)
	if int64(t.T) <= seconds {
		return bson.Timestamp{}
	}
	return bson.Timestamp{T: t.T - uint32(seconds), I: t.I} //nolint:gosec // smaller than t.T
}

// earlier is the smaller of two timestamps.
func earlier(a, b bson.Timestamp) bson.Timestamp {
	if a.Before(b) {
		return a
	}
	return b
}

func (p storedPosition) position() core.Position {
	return core.Position{Time: numberOf(p.Time), Ordinal: uint64(p.Ordinal)} //nolint:gosec // never negative
}

func stored(p core.Position) storedPosition {
	return storedPosition{Time: timestampOf(p.Time), Ordinal: int64(p.Ordinal)} //nolint:gosec // a running number
}
