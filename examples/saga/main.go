// Saga runs four services that fulfil orders together, each with a database of
// its own: what one step did is undone when a later one is refused. The services
// are killed while they work, and started again. In the end the program checks
// that the databases agree, see the README for the invariants.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/gooutbox/outbox/examples/internal/example"
)

func main() { example.Main(run) }

const (
	orders = 200
	// crashes is how often each service kills itself in the middle of a message.
	// MongoDB keeps the locks of such a transaction for a minute.
	crashes = 1
	// kills is how often a service is killed wherever it is.
	kills = 4
	pause = time.Second
)

var services = []string{"order", "payment", "inventory", "shipping"}

// run writes what became of the orders to out, and the count at the end.
func run(ctx context.Context, out io.Writer) (err error) {
	ctx, cancel := example.Limit(ctx)
	defer cancel()
	stage, err := example.Open("saga", out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, drop(stage), stage.Close()) }()
	if err := stage.Build(ctx, "examples/saga/service"); err != nil {
		return err
	}
	broker, err := openBroker(stage.Name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, broker.close()) }()
	stage.Set("ORDERS", strconv.Itoa(orders))
	f := &fleet{stage: stage, running: map[string]*example.Process{}, crashed: map[string]int{}}
	if err := f.run(ctx); err != nil {
		return err
	}
	dead, err := broker.dead()
	if err != nil {
		return err
	}
	state, err := readState(ctx, stage)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "killed=%d confirmed=%d payment_refused=%d sold_out=%d not_shipped=%d\n", f.killed,
		state.ended("shipment.booked"), state.ended("payment.refused"), state.undone("stock.missing"), state.undone("shipment.refused"))
	violations := state.violations()
	if dead > 0 {
		violations = append(violations, fmt.Sprintf("%d messages were given up", dead))
	}
	for _, v := range violations {
		fmt.Fprintln(out, v)
	}
	fmt.Fprintf(out, "orders=%d unfinished=%d violations=%d\n", len(state.orders), state.unfinished(), len(violations))
	if len(violations) > 0 || f.killed < crashes*len(services)+kills {
		return errors.New("the services don't agree, or were not killed as often as they should")
	}
	return nil
}

// fleet is the services that run.
type fleet struct {
	stage   *example.Stage
	running map[string]*example.Process
	// crashed is how often each has killed itself, killed how often all of them
	// were killed.
	crashed map[string]int
	killed  int
}

// run runs the services until every order has ended and every kill took place.
func (f *fleet) run(ctx context.Context) error {
	for _, name := range services {
		if err := f.start(ctx, name); err != nil {
			return err
		}
	}
	left, next := kills, time.Now().Add(pause)
	err := example.Await(ctx, "the orders", func() (bool, error) {
		for name, p := range f.running {
			if killed, err := p.Killed(); err != nil {
				return false, err
			} else if !killed {
				continue
			}
			f.killed++
			f.crashed[name]++
			if err := f.start(ctx, name); err != nil {
				return false, err
			}
		}
		if left > 0 && time.Now().After(next) {
			left, next = left-1, time.Now().Add(pause)
			f.killed++
			name := services[rand.IntN(len(services))]
			f.running[name].Kill()
			if err := f.start(ctx, name); err != nil {
				return false, err
			}
		}
		ended, err := endedOrders(ctx, f.stage)
		return ended == orders && left == 0, err
	})
	for _, p := range f.running {
		err = errors.Join(err, p.Stop())
	}
	return err
}

// start starts a service, which ends in the middle of one of its messages until
// it did so often enough.
func (f *fleet) start(ctx context.Context, name string) error {
	at := ""
	if f.crashed[name] < crashes {
		at = strconv.Itoa(5 + rand.IntN(15))
	}
	f.stage.Set("CRASH_AT", at)
	p, err := f.stage.Start(ctx, "service", name)
	f.running[name] = p
	return err
}

// broker has a queue for each service, and one for what is given up.
type broker struct {
	prefix string
	conn   *amqp091.Connection
	ch     *amqp091.Channel
}

func openBroker(prefix string) (*broker, error) {
	conn, err := amqp091.Dial(example.AMQPURL())
	if err != nil {
		return nil, fmt.Errorf("connecting to the broker: %w", err)
	}
	b := &broker{prefix: prefix, conn: conn}
	if b.ch, err = conn.Channel(); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	for _, name := range b.queues() {
		if _, err := b.ch.QueueDeclare(name, true, false, false, false, nil); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
	}
	return b, nil
}

func (b *broker) queues() []string {
	var names []string
	for _, name := range append([]string{"dead"}, services...) {
		names = append(names, b.prefix+"."+name)
	}
	return names
}

// dead is how many messages were given up.
func (b *broker) dead() (int, error) {
	queue, err := b.ch.QueueDeclarePassive(b.prefix+".dead", true, false, false, false, nil)
	return queue.Messages, err
}

// close removes the queues.
func (b *broker) close() error {
	for _, name := range b.queues() {
		_, _ = b.ch.QueueDelete(name, false, false, false)
	}
	return b.conn.Close()
}
