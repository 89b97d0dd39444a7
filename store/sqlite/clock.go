package sqlite

import (
	"database/sql"
	"time"
)

// sqlNow is the database's clock in a statement: milliseconds since 1970, by the
// clock of the machine. It is the only clock that leases and due times go by. It
// is written so that SQLite 3.37 understands it too, which producers in other
// languages may have.
const sqlNow = "CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)"

// timeOf reads a stored time. NULL is the zero time.
func timeOf(ms sql.NullInt64) time.Time {
	if !ms.Valid {
		return time.Time{}
	}
	return time.UnixMilli(ms.Int64).UTC()
}

// cutTime is what is stored of t.
func cutTime(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }

// ceilMillis is the first stored time that is not before t.
func ceilMillis(t time.Time) int64 {
	ms := t.UnixMilli()
	if time.UnixMilli(ms).Before(t) {
		ms++
	}
	return ms
}

// millis writes a duration, rounded up: nothing is due too early.
func millis(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}
