package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/gooutbox/outbox/core"
)

// backlog is events that are stored and not yet delivered.
type backlog struct {
	events, size, keys int
}

// fieldBytes is about what the fields beside the payload count in Event.Size.
const fieldBytes = 128

// payload is what each event carries: size bytes, or as much as the largest
// event allows.
func (b backlog) payload() []byte {
	p := make([]byte, max(1, min(b.size, core.DefaultMaxEventBytes-fieldBytes)))
	for i := range p {
		p[i] = "0123456789abcdef"[(i*7+i/16)%16]
	}
	return p
}

// store inserts the events by the documented layout, in plain batches: single
// transactions would take minutes and leave the same log behind.
func (b backlog) store(ctx context.Context, log *mongo.Collection) error {
	log = log.Database().Collection(log.Name(), options.Collection().SetWriteConcern(writeconcern.Majority()))
	const batchBytes = 8 << 20
	batch := max(1, min(1000, batchBytes/(b.size+fieldBytes)))
	payload := b.payload()
	starts := make(chan int)
	failed := make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var writers sync.WaitGroup
	for range 4 {
		writers.Go(func() {
			for start := range starts {
				docs := make([]any, 0, batch)
				for n := start; n < min(start+batch, b.events); n++ {
					docs = append(docs, b.document(n, payload))
				}
				if _, err := log.InsertMany(ctx, docs); err != nil {
					select {
					case failed <- fmt.Errorf("storing the backlog: %w", err):
					default:
					}
					cancel()
				}
			}
		})
	}
	for start := 0; start < b.events && ctx.Err() == nil; start += batch {
		select {
		case starts <- start:
		case <-ctx.Done():
		}
	}
	close(starts)
	writers.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return ctx.Err()
	}
}

func (b backlog) document(n int, payload []byte) bson.D {
	key := "order-" + strconv.Itoa(n%b.keys)
	return bson.D{
		{Key: "_id", Value: fmt.Sprintf("%032x", n)},
		{Key: "seq", Value: bson.Timestamp{}},
		{Key: "aggregate", Value: "order"},
		{Key: "aggregate_id", Value: key},
		{Key: "event_type", Value: "order.placed"},
		{Key: "aggregate_version", Value: int64(n/b.keys + 1)},
		{Key: "content_type", Value: "application/json"},
		{Key: "payload", Value: bson.Binary{Data: payload}},
		{Key: "occurred_at", Value: time.Now()},
	}
}
