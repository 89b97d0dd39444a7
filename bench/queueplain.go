package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
)

// drainPlainly does the same by the plain algorithm on the same documents and
// indexes: one findOneAndUpdate and one updateOne a job, both with majority.
func (b *queueBench) drainPlainly(ctx context.Context, s shape) (result, error) {
	store, collection, err := b.newQueue(ctx)
	if err != nil {
		return result{}, err
	}
	if err := b.enqueue(ctx, store, b.plainJobs, ""); err != nil {
		return result{}, err
	}
	var commands, left atomic.Int64
	left.Store(int64(b.plainJobs))
	var (
		jobs    []*mongo.Collection
		clients []*mongo.Client
	)
	defer func() {
		for _, client := range clients {
			_ = client.Disconnect(context.WithoutCancel(ctx))
		}
	}()
	for range s.workers {
		client, err := mongo.Connect(options.Client().ApplyURI(b.mongoURL).SetMonitor(&event.CommandMonitor{
			Started: func(context.Context, *event.CommandStartedEvent) { commands.Add(1) },
		}))
		if err != nil {
			return result{}, fmt.Errorf("connecting to MongoDB: %w", err)
		}
		clients = append(clients, client)
		if err := client.Ping(ctx, nil); err != nil {
			return result{}, fmt.Errorf("reaching MongoDB: %w", err)
		}
		jobs = append(jobs, client.Database(b.db.Name()).Collection(collection+"_jobs",
			options.Collection().SetWriteConcern(writeconcern.Majority())))
	}
	before := commands.Load()
	started := time.Now()
	var lanes sync.WaitGroup
	errs := make(chan error, s.workers*s.lanes)
	for _, of := range jobs {
		for range s.lanes {
			lanes.Go(func() {
				for {
					got, err := plainJob(ctx, of)
					if err != nil {
						errs <- err
						return
					}
					if !got || left.Add(-1) <= 0 {
						return
					}
				}
			})
		}
	}
	lanes.Wait()
	took := time.Since(started).Seconds()
	close(errs)
	if err := <-errs; err != nil {
		return result{}, err
	}
	return result{Seconds: took, Commands: commands.Load() - before}, nil
}

// plainJob leases, delivers to nobody, and completes one job.
func plainJob(ctx context.Context, jobs *mongo.Collection) (bool, error) {
	token := uuid.NewString()
	now := time.Now()
	var job struct {
		ID bson.RawValue `bson:"_id"`
	}
	err := jobs.FindOneAndUpdate(ctx,
		bson.D{
			{Key: "state", Value: "ready"},
			{Key: "sink", Value: queueSink},
			{Key: "rank", Value: bson.D{{Key: "$gte", Value: 0}}},
			{Key: "available_at", Value: bson.D{{Key: "$lte", Value: now}}},
		},
		bson.D{{Key: "$set", Value: bson.D{
			{Key: "state", Value: "active"},
			{Key: "token", Value: token},
			{Key: "lease_until", Value: now.Add(time.Minute)},
			{Key: "claimed_at", Value: now},
		}}},
		options.FindOneAndUpdate().SetReturnDocument(options.After).SetSort(
			bson.D{{Key: "rank", Value: 1}, {Key: "available_at", Value: 1}, {Key: "seq", Value: 1}})).Decode(&job)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("claiming plainly: %w", err)
	}
	_, err = jobs.UpdateOne(ctx, bson.D{{Key: "_id", Value: job.ID}, {Key: "token", Value: token}}, bson.D{
		{Key: "$set", Value: bson.D{
			{Key: "state", Value: "completed"},
			{Key: "attempts", Value: 1},
			{Key: "finished_at", Value: time.Now()},
			{Key: "expire_at", Value: time.Now().Add(24 * time.Hour)},
		}},
		{Key: "$unset", Value: bson.D{{Key: "lease_until", Value: ""}, {Key: "payload", Value: ""}}},
	})
	if err != nil {
		return false, fmt.Errorf("settling plainly: %w", err)
	}
	return true, nil
}
