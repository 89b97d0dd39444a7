package services

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
)

// A kind of server that tests, demo and benchmarks share, and the environment
// variable by which they find it. A later kind is one more line in kinds.
type kind struct {
	name     string
	variable string
	start    func(ctx context.Context, port int, newFolder func() (*folder, error)) (server, error)
}

const (
	kafkaVariable = "KAFKA_BROKERS"
	amqpVariable  = "AMQP_URL"
)

var kinds = []kind{
	{"mongodb", "MONGODB_URL", func(ctx context.Context, port int, newFolder func() (*folder, error)) (server, error) {
		return startMongod(ctx, MongodConfig{Port: port, CacheMB: 1024}, newFolder)
	}},
	{"standalone", "MONGODB_STANDALONE_URL", func(ctx context.Context, port int, newFolder func() (*folder, error)) (server, error) {
		return startMongod(ctx, MongodConfig{Standalone: true, Port: port}, newFolder)
	}},
	{"kafka", kafkaVariable, func(ctx context.Context, port int, newFolder func() (*folder, error)) (server, error) {
		return startKafka(ctx, KafkaConfig{Port: port, Throughput: true}, newFolder)
	}},
	{"rabbitmq", amqpVariable, func(ctx context.Context, port int, newFolder func() (*folder, error)) (server, error) {
		return startRabbitMQ(ctx, RabbitMQConfig{Port: port}, newFolder)
	}},
	{"aws", awsVariable, func(ctx context.Context, port int, newFolder func() (*folder, error)) (server, error) {
		return startAWS(ctx, AWSConfig{Port: port}, newFolder)
	}},
}

// server is a running server of any kind.
type server interface {
	// address is what the environment variable holds.
	address() string
	// identity returns the process and the folder that it was started on.
	identity() (pid int, dir string)
	Close() error
}

func (m *Mongo) address() string         { return m.URL() }
func (m *Mongo) identity() (int, string) { return m.nodes[0].process.pid, m.nodes[0].folder.path }
func (k *Kafka) address() string         { return strings.Join(k.Brokers(), ",") }
func (k *Kafka) identity() (int, string) { return k.process.pid, k.folder.path }

func (r *RabbitMQ) address() string         { return r.URL() }
func (r *RabbitMQ) identity() (int, string) { return r.process.pid, r.folder.path }

// Selection says which of the shared servers to provide, and where. The zero
// value is all of them on free ports.
type Selection struct {
	// Only names the kinds to provide, such as mongodb, standalone, kafka,
	// rabbitmq, aws.
	// Defaults to all.
	Only []string

	// Ports holds a port for some of the kinds. Defaults to free ones.
	Ports map[string]int
}

// validate reports all names that no kind has.
func (s Selection) validate() error {
	names := slices.Clone(s.Only)
	for name := range s.Ports {
		names = append(names, name)
	}
	var known []string
	for _, kind := range kinds {
		known = append(known, kind.name)
	}
	var failure error
	for _, name := range names {
		if !slices.Contains(known, name) {
			failure = errors.Join(failure, fmt.Errorf("selecting servers: there is no %q, only %s", name, strings.Join(known, ", ")))
		}
	}
	return failure
}

// missing returns the kinds to start: those selected that the environment
// doesn't name.
func (s Selection) missing() []kind {
	var found []kind
	for _, kind := range kinds {
		if (len(s.Only) == 0 || slices.Contains(s.Only, kind.name)) && os.Getenv(kind.variable) == "" {
			found = append(found, kind)
		}
	}
	return found
}

// given returns the variables of the selected kinds that the environment names.
func (s Selection) given() []Variable {
	var found []Variable
	for _, kind := range kinds {
		value := os.Getenv(kind.variable)
		if (len(s.Only) == 0 || slices.Contains(s.Only, kind.name)) && value != "" {
			found = append(found, Variable{kind.variable, value})
		}
	}
	return found
}

// Variable is an environment variable that names a server.
type Variable struct{ Name, Value string }

// Export returns the line by which a shell sets the variable.
func (v Variable) Export() string {
	return "export " + v.Name + "='" + strings.ReplaceAll(v.Value, "'", `'\''`) + "'"
}

// startAll starts servers side by side. If one fails, none is left.
func startAll(ctx context.Context, wanted []kind, ports map[string]int, newFolder func(name string) (*folder, error)) ([]server, error) {
	started := make([]server, len(wanted))
	failures := make([]error, len(wanted))
	var all sync.WaitGroup
	for i, kind := range wanted {
		all.Go(func() {
			server, err := kind.start(ctx, ports[kind.name], func() (*folder, error) { return newFolder(kind.name) })
			if err != nil {
				failures[i] = err
				return
			}
			started[i] = server
		})
	}
	all.Wait()
	failure := errors.Join(failures...)
	if failure == nil {
		return started, nil
	}
	for _, server := range started {
		if server != nil {
			failure = errors.Join(failure, server.Close())
		}
	}
	return nil, failure
}
