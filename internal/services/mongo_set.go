package services

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// User and password of the users that servers with Auth or SASL know.
const (
	User     = "outbox"
	Password = "outbox-secret"
)

func credentials(config *MongodConfig) string {
	if config.Auth {
		return User + ":" + Password + "@"
	}
	return ""
}

func (m *Mongo) credentials() string { return credentials(&m.config) }

// initiate makes the nodes a replica set.
func (m *Mongo) initiate(ctx context.Context) error {
	members := bson.A{}
	for i, node := range m.nodes {
		members = append(members, bson.D{{Key: "_id", Value: i}, {Key: "host", Value: node.Address()}})
	}
	config := bson.D{
		{Key: "_id", Value: m.config.ReplicaSet},
		{Key: "members", Value: members},
		{Key: "settings", Value: bson.D{
			{Key: "electionTimeoutMillis", Value: 1000},
			{Key: "heartbeatIntervalMillis", Value: 300},
		}},
	}
	const alreadyInitialized = 23
	err := m.nodes[0].command(ctx, 30*time.Second, bson.D{{Key: "replSetInitiate", Value: config}}, nil)
	if err != nil && !isCode(err, alreadyInitialized) {
		return err
	}
	return nil
}

// createAdmin creates the one user, over the exception that mongod makes for
// local clients as long as there is none.
func (m *Mongo) createAdmin(ctx context.Context) error {
	primary, err := m.Primary(ctx)
	if err != nil {
		return err
	}
	return primary.command(ctx, 10*time.Second, bson.D{
		{Key: "createUser", Value: User},
		{Key: "pwd", Value: Password},
		{Key: "roles", Value: bson.A{"root"}},
		{Key: "writeConcern", Value: bson.D{{Key: "w", Value: "majority"}}},
	}, nil)
}

var errNoPrimary = errors.New("no node is primary")

// Primary returns the node that takes writes at present.
func (m *Mongo) Primary(ctx context.Context) (*MongoNode, error) {
	for _, node := range m.nodes {
		if !node.process.running() {
			continue
		}
		if answer, err := node.hello(ctx); err == nil && answer.Primary {
			return node, nil
		}
	}
	return nil, fmt.Errorf("asking for the primary: %w", errNoPrimary)
}

// AwaitPrimary returns the primary, after an election if need be. In that case
// the nodes that still run must be a majority.
func (m *Mongo) AwaitPrimary(ctx context.Context) (*MongoNode, error) {
	if err := m.awaitPrimary(ctx); err != nil {
		return nil, err
	}
	return m.Primary(ctx)
}

func (m *Mongo) awaitPrimary(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	for _, node := range m.nodes {
		if node.process.running() {
			return node.process.await(ctx, func(ctx context.Context) error {
				_, err := m.Primary(ctx)
				return err
			})
		}
	}
	return fmt.Errorf("waiting for a primary: %w: none runs", errNoPrimary)
}

// StepDown makes the primary give up its part and returns when there is a new
// one: another node, or in a set of one the same after two seconds.
func (m *Mongo) StepDown(ctx context.Context) error {
	primary, err := m.AwaitPrimary(ctx)
	if err != nil {
		return err
	}
	seconds, catchUp := 10, 1 // the others elect one long before
	if len(m.nodes) == 1 {
		seconds, catchUp = 2, 0
	}
	const exceededTimeLimit = 262 // on a busy machine: nothing has changed
	for attempt := 1; ; attempt++ {
		err = primary.commandAt(ctx, 15*time.Second, primary.URL(), bson.D{
			{Key: "replSetStepDown", Value: seconds},
			{Key: "secondaryCatchUpPeriodSecs", Value: catchUp},
			{Key: "force", Value: true},
		}, nil)
		if err == nil {
			return m.awaitPrimary(ctx)
		}
		if attempt == 5 || !isCode(err, exceededTimeLimit) {
			return err
		}
	}
}
