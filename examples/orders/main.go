// Orders runs the example as a whole and checks it: the producer, the relay as
// a program of one's own, the producer again, and then `outbox relay`, which
// goes on where the other has stopped. It reads Kafka and compares it with the
// orders in the database.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

const module = "github.com/gooutbox/outbox/"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	err := run(ctx, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run writes what the programs print to out, and the count at the end.
func run(ctx context.Context, out io.Writer) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "orders-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	example := example{
		uri:      cmp.Or(os.Getenv("MONGODB_URL"), "mongodb://127.0.0.1:27017/?replicaSet=rs0"),
		database: filepath.Base(dir), // one of its own each time
		brokers:  cmp.Or(os.Getenv("KAFKA_BROKERS"), "127.0.0.1:9092"),
		dir:      dir,
		out:      out,
	}
	build := exec.CommandContext(ctx, "go", "build", "-o", dir+"/",
		module+"cmd/outbox", module+"examples/orders/producer", module+"examples/orders/relay")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building: %w\n%s", err, out)
	}
	return example.run(ctx)
}

type example struct {
	uri, database, brokers, dir string
	out                         io.Writer
}

func (e *example) run(ctx context.Context) error {
	client, err := mongo.Connect(options.Client().ApplyURI(e.uri))
	if err != nil {
		return err
	}
	defer client.Disconnect(context.WithoutCancel(ctx)) //nolint:errcheck // the program ends
	db := client.Database(e.database)
	defer db.Drop(context.WithoutCancel(ctx)) //nolint:errcheck // so that another run finds the same
	config, err := configFile()
	if err != nil {
		return err
	}
	events := newTopic(e)
	defer events.close()
	for _, relay := range []*exec.Cmd{
		e.command(ctx, "relay"),
		e.command(ctx, "outbox", "relay", "--config", config),
	} {
		if err := e.command(ctx, "producer").Run(); err != nil {
			return fmt.Errorf("running the producer: %w", err)
		}
		if err := relay.Start(); err != nil {
			return err
		}
		err := events.readAll(ctx, db)
		_ = relay.Process.Signal(syscall.SIGTERM)
		if err = errors.Join(err, relay.Wait()); err != nil {
			return fmt.Errorf("running %s: %w", relay, err)
		}
	}
	return events.check(ctx, db, e.out)
}

// configFile is the outbox.yaml beside this file's folder, wherever in the
// repository the program was started.
func configFile() (string, error) {
	out, err := exec.Command("go", "list", "-f", "{{.Dir}}", module+"examples/orders").Output()
	if err != nil {
		return "", fmt.Errorf("looking for outbox.yaml: %w", err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "outbox.yaml"), nil
}

func (e *example) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(e.dir, name), args...)
	cmd.Env = append(os.Environ(), "MONGODB_URL="+e.uri, "DATABASE="+e.database, "KAFKA_BROKERS="+e.brokers)
	cmd.Stdout, cmd.Stderr = e.out, os.Stderr
	return cmd
}
