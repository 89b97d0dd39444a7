// Package example is what the examples that show whole systems have in common:
// a database and a folder of their own for each run, the programs that take
// part, and the end of all of it. What an example is about stands in the example.
package example

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

// longest is how long an example may take.
const longest = 10 * time.Minute

// Main runs an example until it ends, or SIGTERM or SIGINT ends it. An error is
// status 1.
func Main(run func(ctx context.Context, out io.Writer) error) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	err := run(ctx, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// MongoURL is where MongoDB runs, by MONGODB_URL.
func MongoURL() string {
	return cmp.Or(os.Getenv("MONGODB_URL"), "mongodb://127.0.0.1:27017/?replicaSet=rs0")
}

// KafkaBrokers are those that KAFKA_BROKERS names.
func KafkaBrokers() []string {
	return strings.Split(cmp.Or(os.Getenv("KAFKA_BROKERS"), "127.0.0.1:9092"), ",")
}

// AMQPURL is where RabbitMQ runs, by AMQP_URL.
func AMQPURL() string {
	return cmp.Or(os.Getenv("AMQP_URL"), "amqp://guest:guest@127.0.0.1:5672/")
}

// Stage is where one run of an example takes place. Its methods may not be
// called concurrently.
type Stage struct {
	// Name is different each time: of the database, and of whatever else is the
	// run's own.
	Name string
	// DB is a database of that name. Close drops it.
	DB *mongo.Database
	// Out takes what the programs print.
	Out io.Writer

	dir     string
	env     []string
	started []*Process
}

// Open makes a stage for an example. The caller must Close it.
func Open(name string, out io.Writer) (*Stage, error) {
	client, err := mongo.Connect(options.Client().ApplyURI(MongoURL()))
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", name+"-")
	if err != nil {
		return nil, errors.Join(err, client.Disconnect(context.Background()))
	}
	s := &Stage{Name: filepath.Base(dir), Out: out, dir: dir}
	s.DB = client.Database(s.Name)
	s.Set("MONGODB_URL", MongoURL())
	s.Set("KAFKA_BROKERS", strings.Join(KafkaBrokers(), ","))
	s.Set("AMQP_URL", AMQPURL())
	s.Set("DATABASE", s.Name)
	return s, nil
}

// Limit bounds a run.
func Limit(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, longest)
}

// Close kills the programs that still run, and removes all that Open made.
func (s *Stage) Close() error {
	for _, p := range s.started {
		p.Kill()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return errors.Join(s.DB.Drop(ctx), s.DB.Client().Disconnect(ctx), os.RemoveAll(s.dir))
}

// Set sets an environment variable for the stage's programs. MONGODB_URL,
// KAFKA_BROKERS, AMQP_URL and DATABASE are set.
func (s *Stage) Set(name, value string) { s.env = append(s.env, name+"="+value) }

// Build compiles packages of this module, such as cmd/outbox; each program is
// called by the last part of its package's path.
func (s *Stage) Build(ctx context.Context, packages ...string) error {
	args := []string{"build", "-o", s.dir + "/"}
	for _, pkg := range packages {
		args = append(args, module+pkg)
	}
	if out, err := exec.CommandContext(ctx, "go", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w\n%s", strings.Join(packages, ", "), err, out)
	}
	return nil
}

// Command is a run of a program that Build made.
func (s *Stage) Command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(s.dir, program), args...)
	cmd.Env = append(os.Environ(), s.env...)
	cmd.Stdout, cmd.Stderr = s.Out, os.Stderr
	return cmd
}

// Start starts a program that Build made.
func (s *Stage) Start(ctx context.Context, program string, args ...string) (*Process, error) {
	p := &Process{cmd: s.Command(ctx, program, args...)}
	if err := p.start(); err != nil {
		return nil, err
	}
	s.started = append(s.started, p)
	return p, nil
}

// Relay starts `outbox relay` with the outbox.yaml of a package of this module.
func (s *Stage) Relay(ctx context.Context, pkg string) (*Process, error) {
	dir, err := Folder(ctx, pkg)
	if err != nil {
		return nil, err
	}
	return s.Start(ctx, "outbox", "relay", "--config", filepath.Join(dir, "outbox.yaml"))
}

// Folder is where a package of this module lies, wherever in the repository the
// program was started.
func Folder(ctx context.Context, pkg string) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", module+pkg).Output()
	if err != nil {
		return "", fmt.Errorf("looking for %s: %w", pkg, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// Await asks again and again until done says so. what is for the error when ctx
// ends before.
func Await(ctx context.Context, what string, done func() (bool, error)) error {
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, ctx.Err())
		}
	}
}
