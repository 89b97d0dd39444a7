package sqlite

import (
	"fmt"
	"net/url"
	"time"
)

// DSN is the data source name for a program's own connections to the file at
// path, with the driver "sqlite" of modernc.org/sqlite: they wait for other
// writers instead of failing at once, sync what they commit, and begin each
// transaction as the writer.
//
//	db, err := sql.Open("sqlite", sqlitestore.DSN("shop.db"))
//
// A transaction that begins as a reader and writes later (BEGIN without
// IMMEDIATE) fails with SQLITE_BUSY_SNAPSHOT where another one has written in
// between. A commit that is not synced (synchronous=NORMAL or OFF) may be undone
// by a loss of power together with its events, also after these were sent.
func DSN(path string) string { return dsn(path, DefaultBusyTimeout) }

func dsn(path string, busy time.Duration) string {
	return fileURI(path) + "?_txlock=immediate" + pragmas(busy) + "&_pragma=synchronous(FULL)"
}

// readDSN is that of connections that only read: a missing file is not made.
func readDSN(path string, busy time.Duration) string {
	return fileURI(path) + "?mode=rw" + pragmas(busy) + "&_pragma=query_only(1)"
}

// fileURI escapes what has a meaning in a URI.
func fileURI(path string) string { return "file:" + (&url.URL{Path: path}).EscapedPath() }

// pragmas are those of every connection: SQLite keeps them by connection.
func pragmas(busy time.Duration) string {
	return fmt.Sprintf("&_pragma=busy_timeout(%d)&_pragma=foreign_keys(1)&_pragma=temp_store(MEMORY)", busy.Milliseconds())
}
