package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"runtime/pprof"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/relay"
	"github.com/gooutbox/outbox/sink/kafka"
	mongostore "github.com/gooutbox/outbox/store/mongo"
)

// drainChild relays until every route has delivered so many events, or for
// ever if none are told.
func drainChild(ctx context.Context, s servers, args []string) error {
	flags := flag.NewFlagSet("drain-child", flag.ContinueOnError)
	database := flags.String("database", "", "")
	name := flags.String("name", "", "beginning of the routes' names")
	routes := flags.Int("routes", 1, "")
	events := flags.Int("events", 0, "")
	profile := flags.String("profile", "", "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *profile != "" {
		out, err := os.Create(*profile)
		if err != nil {
			return err
		}
		defer out.Close() //nolint:errcheck // a profile
		if err := pprof.StartCPUProfile(out); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	debug.SetGCPercent(50) // as `outbox relay` does
	var commands atomic.Int64
	client, err := mongo.Connect(options.Client().ApplyURI(s.mongoURL).SetMonitor(&event.CommandMonitor{
		Started: func(context.Context, *event.CommandStartedEvent) { commands.Add(1) },
	}))
	if err != nil {
		return fmt.Errorf("connecting to MongoDB: %w", err)
	}
	defer func() { _ = client.Disconnect(context.WithoutCancel(ctx)) }()
	store, err := mongostore.New(client.Database(*database), mongostore.Config{})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := &finish{left: int64(*events * *routes), finished: cancel}
	warnings := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	var sinks []core.Sink
	defer func() {
		for _, sink := range sinks {
			_ = sink.Close(context.WithoutCancel(ctx)) // it holds nothing that is not confirmed
		}
	}()
	cfg := relay.Config{Log: store, Sinks: map[string]core.Sink{}, Logger: warnings}
	for n := range *routes {
		route := routeName(*name, n)
		sink, err := kafka.New(kafka.Config{Brokers: s.brokers, Topic: topicName(*database, route)})
		if err != nil {
			return err
		}
		sinks = append(sinks, sink)
		cfg.Sinks[route] = &countingSink{Sink: sink, finish: done}
		cfg.Routes = append(cfg.Routes, relay.Route{Name: route, Sink: route})
	}
	r, err := relay.New(cfg)
	if err != nil {
		return err
	}
	started := time.Now()
	if err := r.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return report(result{Seconds: done.at.Sub(started).Seconds(), Commands: commands.Load()})
}

// finish ends the child when the last event is delivered.
type finish struct {
	left     int64 // atomic
	at       time.Time
	finished func()
}

func (f *finish) delivered(n int64) {
	if n > 0 && atomic.AddInt64(&f.left, -n) == 0 {
		f.at = time.Now()
		f.finished()
	}
}

// countingSink is a sink that counts what was delivered.
type countingSink struct {
	core.Sink
	finish *finish
}

func (s *countingSink) Capabilities() core.Capabilities { return core.CapabilitiesOf(s.Sink) }

func (s *countingSink) Deliver(ctx context.Context, leases []core.Lease) []core.Result {
	results := s.Sink.Deliver(ctx, leases)
	n := int64(0)
	for i := range results {
		if results[i].Outcome == core.Delivered {
			n++
		}
	}
	s.finish.delivered(n)
	return results
}
