package mongo_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/gooutbox/outbox/core"
	mongostore "github.com/gooutbox/outbox/store/mongo"
)

// The order and the event that tells of it are written in one transaction:
// both exist, or neither.
func Example() {
	ctx := context.Background()
	client, err := mongo.Connect(options.Client().ApplyURI(os.Getenv("MONGODB_URL")))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = client.Disconnect(ctx) }()
	db := client.Database(fmt.Sprintf("outbox-example-%d", os.Getpid()))
	defer func() { _ = db.Drop(ctx) }()

	outbox, err := mongostore.New(db, mongostore.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := outbox.EnsureIndexes(ctx); err != nil {
		fmt.Println(err)
		return
	}

	placeOrder := func(id string) error {
		return outbox.InTransaction(ctx, func(ctx context.Context) error {
			if _, err := db.Collection("orders").InsertOne(ctx, bson.D{{Key: "_id", Value: id}}); err != nil {
				return err
			}
			placed, err := core.WithJSON(core.Event{Aggregate: "order", AggregateID: id, Type: "order.placed"}, map[string]string{"id": id})
			if err != nil {
				return err
			}
			return outbox.Append(ctx, placed)
		})
	}
	fmt.Println("first order:", placeOrder("o-1"))
	fmt.Println("the same again fails:", placeOrder("o-1") != nil)

	events, err := db.Collection("outbox").CountDocuments(ctx, bson.D{})
	fmt.Println("events:", events, err)
	// Output:
	// first order: <nil>
	// the same again fails: true
	// events: 1 <nil>
}

// TestMain leaves the example out where there is no server: an example can't be
// skipped. And it lets more tests run side by side than there are processors:
// most of their time they wait, for leases to end and for servers to answer.
func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		_ = flag.Set("test.parallel", "6")
	}
	if os.Getenv("MONGODB_URL") == "" {
		_ = flag.Set("test.skip", "^Example$")
	}
	os.Exit(m.Run())
}
