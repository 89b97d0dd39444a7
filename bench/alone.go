package main

import (
	"context"
	"encoding/base64"
	"flag"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// aloneChild reads the backlog by a change stream and does nothing with it:
// the ceiling for everything that reads one.
func aloneChild(ctx context.Context, s servers, args []string) error {
	flags := flag.NewFlagSet("alone-child", flag.ContinueOnError)
	database := flags.String("database", "", "")
	events := flags.Int("events", 0, "")
	token := flags.String("token", "", "resume token, base64")
	if err := flags.Parse(args); err != nil {
		return err
	}
	after, err := base64.StdEncoding.DecodeString(*token)
	if err != nil {
		return fmt.Errorf("decoding the token: %w", err)
	}
	client, err := mongo.Connect(options.Client().ApplyURI(s.mongoURL))
	if err != nil {
		return fmt.Errorf("connecting to MongoDB: %w", err)
	}
	defer func() { _ = client.Disconnect(context.WithoutCancel(ctx)) }()
	if err := client.Ping(ctx, nil); err != nil {
		return fmt.Errorf("reaching MongoDB: %w", err)
	}
	started := time.Now()
	onlyInserts := mongo.Pipeline{{{Key: "$match", Value: bson.D{{Key: "operationType", Value: "insert"}}}}}
	stream, err := client.Database(*database).Collection(logName).Watch(ctx, onlyInserts,
		options.ChangeStream().SetResumeAfter(bson.Raw(after)))
	if err != nil {
		return fmt.Errorf("opening the stream: %w", err)
	}
	defer func() { _ = stream.Close(context.WithoutCancel(ctx)) }()
	for range *events {
		if !stream.Next(ctx) {
			return fmt.Errorf("reading the stream: %w", stream.Err())
		}
	}
	return report(result{Seconds: time.Since(started).Seconds()})
}
