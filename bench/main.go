// Command bench measures the way of an event from MongoDB to Kafka, and that of
// a job through the queue, on real servers, named by MONGODB_URL and
// KAFKA_BROKERS.
//
//	go run ./bench log      # drains a backlog: events a second, commands, memory
//	go run ./bench latency  # from commit to consumer, at a steady rate
//	go run ./bench queue    # jobs a second, beside a plain algorithm; no Kafka
//	go run ./bench sqlite   # log and queue on a SQLite file; no server at all
//	go run ./bench sinks    # events a second through each sink whose server is named
//
// All take --json and --help. What drains is a process of its own, started
// when the backlog is stored, so that its memory and CPU time are its own.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	commands := map[string]func(context.Context, servers, []string) error{
		"log": benchLog, "latency": benchLatency, "queue": benchQueue, "sinks": benchSinks, "sqlite": benchSQLite,
		// What these two started: not for people.
		"drain-child": drainChild, "alone-child": aloneChild,
	}
	if len(args) == 0 || commands[args[0]] == nil {
		return errors.New("say what to measure: log, latency, queue, sinks or sqlite")
	}
	s := servers{mongoURL: os.Getenv("MONGODB_URL"), brokers: strings.Split(os.Getenv("KAFKA_BROKERS"), ",")}
	if args[0] == "sqlite" {
		return benchSQLite(ctx, s, args[1:]) // needs no server
	}
	if s.mongoURL == "" || s.brokers[0] == "" && args[0] != "queue" && args[0] != "sinks" {
		return errors.New("set MONGODB_URL and KAFKA_BROKERS, as `make services` prints them")
	}
	return commands[args[0]](ctx, s, args[1:])
}

// servers is where MongoDB and Kafka are.
type servers struct {
	mongoURL string
	brokers  []string
}
