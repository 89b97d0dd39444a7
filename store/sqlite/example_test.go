package sqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/gooutbox/outbox/core"
	sqlitestore "github.com/gooutbox/outbox/store/sqlite"
)

// An order and the event that tells it are written in one transaction of the
// program's own, and read by a cursor as a relay does.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "shop")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "shop.db")

	store, err := sqlitestore.New(path, sqlitestore.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	if err := store.Migrate(ctx); err != nil { // once, at start
		log.Fatal(err)
	}

	db, err := sql.Open("sqlite", sqlitestore.DSN(path))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, "CREATE TABLE orders (id TEXT); INSERT INTO orders VALUES ('order-7')"); err != nil {
		log.Fatal(err)
	}
	event := core.Event{AggregateID: "order-7", Type: "order.placed", Payload: []byte(`{"total":12}`)}
	if err := store.Append(ctx, tx, event); err != nil {
		log.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		log.Fatal(err)
	}
	store.Notify() // readers of this process need not poll for it

	cursor, err := store.Acquire(ctx, core.AcquireRequest{Name: "example", Owner: "me"})
	if err != nil {
		log.Fatal(err)
	}
	batch, err := cursor.Read(ctx, core.ReadLimit{})
	if err != nil {
		log.Fatal(err)
	}
	for _, entry := range batch.Entries {
		fmt.Printf("%s of %s: %s\n", entry.Event.Type, entry.Event.AggregateID, entry.Event.Payload)
	}
	// Output: order.placed of order-7: {"total":12}
}
