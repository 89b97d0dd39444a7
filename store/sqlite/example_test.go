package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/gooutbox/outbox/core"
	sqlitestore "github.com/gooutbox/outbox/store/sqlite"
)

// An order and the event that tells it are written in one transaction of the
// program's own, and read by a cursor as a relay does.
func Example() {
	dir, err := os.MkdirTemp("", "shop")
	if err == nil {
		err = errors.Join(placeOrder(context.Background(), filepath.Join(dir, "shop.db")), os.RemoveAll(dir))
	}
	if err != nil {
		fmt.Println(err)
	}
	// Output: order.placed of order-7: {"total":12}
}

func placeOrder(ctx context.Context, path string) error {
	store, err := sqlitestore.New(path, sqlitestore.Config{})
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	if err := store.Migrate(ctx); err != nil { // once, at start
		return err
	}
	db, err := sql.Open("sqlite", sqlitestore.DSN(path))
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, "CREATE TABLE orders (id TEXT); INSERT INTO orders VALUES ('order-7')"); err != nil {
		return err
	}
	event := core.Event{AggregateID: "order-7", Type: "order.placed", Payload: []byte(`{"total":12}`)}
	if err := store.Append(ctx, tx, event); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	store.Notify() // readers of this process need not poll for it

	cursor, err := store.Acquire(ctx, core.AcquireRequest{Name: "example", Owner: "me"})
	if err != nil {
		return err
	}
	batch, err := cursor.Read(ctx, core.ReadLimit{})
	for _, entry := range batch.Entries {
		fmt.Printf("%s of %s: %s\n", entry.Event.Type, entry.Event.AggregateID, entry.Event.Payload)
	}
	return err
}
