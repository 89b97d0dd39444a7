package services

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// MongoNode is one mongod.
type MongoNode struct {
	program string
	config  *MongodConfig
	folder  *folder
	port    *port
	key     string // the file with the set's common secret, if any
	clock   time.Duration
	process *process
}

// Address returns host and port.
func (n *MongoNode) Address() string { return n.port.address() }

// URL returns a connection string that reaches this node alone, whatever part
// it plays in the set.
func (n *MongoNode) URL() string {
	return "mongodb://" + credentials(n.config) + n.Address() + "/?directConnection=true"
}

// Start starts the node on its old data and port and returns when it answers.
// That is before the set has elected a primary.
func (n *MongoNode) Start(ctx context.Context) error {
	if n.process.running() {
		return fmt.Errorf("starting mongod %s: it is running", n.Address())
	}
	program, args, err := n.commandLine(ctx)
	if err != nil {
		return err
	}
	started, err := launch("mongod", n.folder.file("log"), n.folder.lasting, program, args...)
	if err != nil {
		return err
	}
	n.process = started
	return started.await(ctx, func(ctx context.Context) error {
		_, err := n.hello(ctx)
		return err
	})
}

// commandLine is how the node is started: by env where its clock is to be wrong.
func (n *MongoNode) commandLine(ctx context.Context) (program string, args []string, err error) {
	if n.clock == 0 {
		return n.program, n.args(), nil
	}
	library, err := Faketime(ctx)
	if err != nil {
		return "", nil, err
	}
	args = append([]string{
		"LD_PRELOAD=" + library, fmt.Sprintf("FAKETIME=%+.3f", n.clock.Seconds()), "FAKETIME_DONT_FAKE_MONOTONIC=1", n.program,
	}, n.args()...)
	return "env", args, nil
}

func (n *MongoNode) args() []string {
	cacheMB := n.config.CacheMB
	if cacheMB == 0 {
		cacheMB = 512
	}
	args := []string{
		"--dbpath", n.folder.file("data"), "--bind_ip", "127.0.0.1", "--port", strconv.Itoa(n.port.number),
		"--nounixsocket", "--quiet",
		"--wiredTigerCacheSizeGB", strconv.FormatFloat(float64(cacheMB)/1024, 'f', 3, 64),
		"--setParameter", "enableTestCommands=1",
		"--setParameter", "diagnosticDataCollectionEnabled=false",
	}
	if !n.config.Standalone {
		args = append(args, "--replSet", n.config.ReplicaSet)
	}
	if n.config.OplogSizeMB != 0 {
		args = append(args, "--oplogSize", strconv.Itoa(n.config.OplogSizeMB))
	}
	if n.config.Auth {
		args = append(args, "--auth")
	}
	if n.key != "" {
		args = append(args, "--keyFile", n.key)
	}
	for _, name := range slices.Sorted(maps.Keys(n.config.Parameters)) {
		args = append(args, "--setParameter", name+"="+n.config.Parameters[name])
	}
	return append(args, n.config.Args...)
}

// Kill ends the node without notice (SIGKILL).
func (n *MongoNode) Kill() {
	if n.process != nil {
		n.process.kill()
	}
}

// Stop ends the node in an orderly way. The data stays for Start.
func (n *MongoNode) Stop() error {
	if n.process == nil {
		return nil
	}
	return n.process.stop()
}

// Pause freezes the node (SIGSTOP): its connections stay open and nothing
// answers.
func (n *MongoNode) Pause() error { return n.process.signal(syscall.SIGSTOP) }

// Resume lets a paused node go on.
func (n *MongoNode) Resume() error { return n.process.signal(syscall.SIGCONT) }

// Log returns the path of the node's log.
func (n *MongoNode) Log() string { return n.folder.file("log") }

// hello is what a node tells about itself.
type hello struct {
	Primary bool `bson:"isWritablePrimary"`
}

func (n *MongoNode) hello(ctx context.Context) (hello, error) {
	var answer hello
	err := n.command(ctx, 2*time.Second, bson.D{{Key: "hello", Value: 1}}, &answer)
	return answer, err
}

// command runs one admin command on this node alone, without logging in
// unless the deployment has users.
func (n *MongoNode) command(ctx context.Context, timeout time.Duration, command bson.D, answer any) error {
	return n.commandAt(ctx, timeout, "mongodb://"+n.Address()+"/?directConnection=true", command, answer)
}

func (n *MongoNode) commandAt(ctx context.Context, timeout time.Duration, url string, command bson.D, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	client, err := mongo.Connect(options.Client().ApplyURI(url).SetServerSelectionTimeout(timeout))
	if err != nil {
		return fmt.Errorf("connecting to mongod %s: %w", n.Address(), err)
	}
	defer client.Disconnect(context.WithoutCancel(ctx)) //nolint:errcheck // nothing is left to save
	result := client.Database("admin").RunCommand(ctx, command)
	if answer == nil {
		err = result.Err()
	} else {
		err = result.Decode(answer)
	}
	if err != nil {
		return fmt.Errorf("running %s on mongod %s: %w", command[0].Key, n.Address(), err)
	}
	return nil
}

// writeSecret writes the file by which the nodes of a set know one another.
func writeSecret(dir *folder) (string, error) {
	path := dir.file("key")
	if err := os.WriteFile(path, []byte("b3V0Ym94LXNlcnZpY2Vz"), 0o400); err != nil {
		return "", fmt.Errorf("writing the set's key: %w", err)
	}
	return path, nil
}

// isCode tells whether err is a server error with that code.
func isCode(err error, code int) bool {
	var failure mongo.ServerError
	return errors.As(err, &failure) && failure.HasErrorCode(code)
}
