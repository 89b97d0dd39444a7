package services

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// startTime bounds the start of a server. One that ends is noticed at once, so
// this only has to be longer than a start on a very busy machine.
const startTime = 3 * time.Minute

// MongodConfig says which mongod to start. The zero value is a replica set of one.
type MongodConfig struct {
	// Standalone starts one mongod outside any replica set: no transactions,
	// no change streams.
	Standalone bool

	// Nodes of the replica set. Defaults to 1.
	Nodes int

	// ReplicaSet is the set's name. Defaults to "rs0".
	ReplicaSet string

	// Auth makes every client log in. URL then holds the name and the password
	// of a user with all rights.
	Auth bool

	// OplogSizeMB is the size of the log that feeds change streams. Defaults
	// to what mongod takes: a share of the disk.
	OplogSizeMB int

	// CacheMB is the size of the storage engine's cache of each node. Defaults
	// to 512.
	CacheMB int

	// Parameters are set at start (`--setParameter`), such as
	// minSnapshotHistoryWindowInSeconds or transactionLifetimeLimitSeconds.
	// enableTestCommands, which fail points need, is always on.
	Parameters map[string]string

	// Args are added to each mongod's command line as they are.
	Args []string

	// Port is the port of the first node. Defaults to a free one.
	Port int

	// Clocks are how far the wall clocks of nodes are ahead, by number from 0 on,
	// behind if negative. What they count on their monotonic clocks is right. It
	// needs libfaketime, see [Faketime].
	Clocks map[int]time.Duration
}

func (c MongodConfig) withDefaults() (MongodConfig, error) {
	if c.Standalone {
		if c.Nodes > 1 || c.ReplicaSet != "" || c.OplogSizeMB != 0 {
			return c, errors.New("configuring mongod: a standalone has one node, no set name and no oplog")
		}
		c.Nodes = 1
		return c, nil
	}
	if c.Nodes == 0 {
		c.Nodes = 1
	}
	if c.ReplicaSet == "" {
		c.ReplicaSet = "rs0"
	}
	return c, nil
}

// Mongo is a running MongoDB deployment. Its methods may not be called
// concurrently, those of different nodes may.
type Mongo struct {
	config MongodConfig
	nodes  []*MongoNode
}

// StartMongod starts a deployment and returns when it takes writes. ctx bounds
// the start only. The caller must Close it.
func StartMongod(ctx context.Context, config MongodConfig) (*Mongo, error) {
	return startMongod(ctx, config, func() (*folder, error) { return newFolder(ctx, "mongod") })
}

func startMongod(ctx context.Context, config MongodConfig, newFolder func() (*folder, error)) (*Mongo, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	program, err := Mongod(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	m := &Mongo{config: config}
	if err := m.start(ctx, program, newFolder); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

func (m *Mongo) start(ctx context.Context, program string, newFolder func() (*folder, error)) error {
	for number := range m.config.Nodes {
		dir, err := newFolder()
		if err != nil {
			return err
		}
		node := &MongoNode{program: program, config: &m.config, folder: dir, clock: m.config.Clocks[number]}
		m.nodes = append(m.nodes, node)
		wanted := 0
		if m.config.Port != 0 {
			wanted = m.config.Port + number
		}
		if node.port, err = reservePort(wanted); err != nil {
			return err
		}
		if err := os.Mkdir(dir.file("data"), 0o700); err != nil {
			return fmt.Errorf("making the data folder: %w", err)
		}
		if m.config.Auth && !m.config.Standalone {
			if node.key, err = writeSecret(dir); err != nil {
				return err
			}
		}
	}
	if err := m.launch(ctx); err != nil {
		return err
	}
	if !m.config.Standalone {
		if err := m.initiate(ctx); err != nil {
			return err
		}
	}
	if err := m.awaitPrimary(ctx); err != nil {
		return err
	}
	if m.config.Auth {
		return m.createAdmin(ctx)
	}
	return nil
}

// launch starts all nodes that aren't running, side by side.
func (m *Mongo) launch(ctx context.Context) error {
	failures := make([]error, len(m.nodes))
	var all sync.WaitGroup
	for i, node := range m.nodes {
		if !node.process.running() {
			all.Go(func() { failures[i] = node.Start(ctx) })
		}
	}
	all.Wait()
	return errors.Join(failures...)
}

// URL returns the connection string of the whole deployment.
func (m *Mongo) URL() string {
	hosts := make([]string, 0, len(m.nodes))
	for _, node := range m.nodes {
		hosts = append(hosts, node.Address())
	}
	url := "mongodb://" + m.credentials() + strings.Join(hosts, ",") + "/?"
	if m.config.Standalone {
		return url + "directConnection=true"
	}
	return url + "replicaSet=" + m.config.ReplicaSet
}

// Nodes returns the nodes, in the order of their ports' reservation. The first
// one has no special part: ask Primary which one leads.
func (m *Mongo) Nodes() []*MongoNode { return m.nodes }

// Kill ends all nodes at once, without notice (SIGKILL).
func (m *Mongo) Kill() {
	for _, node := range m.nodes {
		node.Kill()
	}
}

// Stop ends all nodes in an orderly way. The data stays for Start.
func (m *Mongo) Stop() error {
	failures := make([]error, len(m.nodes))
	var all sync.WaitGroup
	for i, node := range m.nodes {
		all.Go(func() { failures[i] = node.Stop() })
	}
	all.Wait()
	return errors.Join(failures...)
}

// Start starts the nodes that aren't running, on their old data and ports, and
// returns when the deployment takes writes again.
func (m *Mongo) Start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	if err := m.launch(ctx); err != nil {
		return err
	}
	return m.awaitPrimary(ctx)
}

// Restart stops all nodes in an orderly way and starts them again.
func (m *Mongo) Restart(ctx context.Context) error {
	if err := m.Stop(); err != nil {
		return err
	}
	return m.Start(ctx)
}

// Close kills all nodes and removes their data. It may be called twice.
func (m *Mongo) Close() error {
	m.Kill()
	var failure error
	for _, node := range m.nodes {
		failure = errors.Join(failure, node.folder.remove())
		if node.port != nil {
			node.port.release()
		}
	}
	return failure
}
