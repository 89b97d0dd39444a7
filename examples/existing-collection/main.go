// Existing-collection puts a relay behind an outbox that a Python program has
// filled for long: lint, a trial beside the old publisher, and then the change to
// the relay, after which the old publisher would find nothing left to send.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/gooutbox/outbox/examples/internal/example"
	"github.com/gooutbox/outbox/internal/services"
)

func main() { example.Main(run) }

// Orders that the shop places before the trial: those whose events the old
// publisher has sent, and those that it has not; and after the change.
const sent, unsent, later = 10, 10, 5

// adoption is one run.
type adoption struct {
	*example.Stage
	folder string
}

// run writes what the commands print to out, and the count at the end.
func run(ctx context.Context, out io.Writer) (err error) {
	ctx, cancel := example.Limit(ctx)
	defer cancel()
	stage, err := example.Open("existing", out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stage.Close()) }()
	if err := stage.Build(ctx, "cmd/outbox"); err != nil {
		return err
	}
	a := &adoption{Stage: stage}
	if a.folder, err = example.Folder(ctx, "examples/existing-collection"); err != nil {
		return err
	}
	if err := errors.Join(a.shop(ctx, 0, sent, "published"), a.shop(ctx, sent, unsent)); err != nil {
		return err
	}
	for _, command := range [][]string{{"lint"}, {"check"}, {"indexes"}} {
		if err := a.outbox(ctx, "outbox.yaml", command...); err != nil {
			return err
		}
	}
	if err := a.trial(ctx); err != nil {
		return err
	}
	return a.change(ctx)
}

// shop runs the Python program.
func (a *adoption) shop(ctx context.Context, first, count int, more ...string) error {
	args := append([]string{example.MongoURL(), a.Name, strconv.Itoa(first), strconv.Itoa(count)}, more...)
	cmd, err := services.Python(ctx, filepath.Join(a.folder, "shop.py"), args...)
	if err != nil {
		return err
	}
	cmd.Stderr = os.Stderr
	return cmd.Run()
}

// outbox runs a command of the binary.
func (a *adoption) outbox(ctx context.Context, config string, args ...string) error {
	cmd := a.Command(ctx, "outbox", append(args, "--config", filepath.Join(a.folder, config))...)
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("running outbox %s: %w", args[0], err)
	}
	return nil
}

// trial lets a relay send what is unsent to another topic, and takes back all
// that is left of it.
func (a *adoption) trial(ctx context.Context) error {
	relay, err := a.Start(ctx, "outbox", "relay", "--config", filepath.Join(a.folder, "trial.yaml"))
	if err != nil {
		return err
	}
	topic := example.OpenTopic(a.Name + ".order.trial")
	_, err = read(ctx, topic, 2*unsent)
	if err := errors.Join(err, topic.Close(), relay.Stop()); err != nil {
		return err
	}
	if left, err := a.unpublished(ctx); err != nil {
		return err
	} else if left != 2*unsent {
		return fmt.Errorf("the trial left %d events to the old publisher, not %d", left, 2*unsent)
	}
	return a.outbox(ctx, "outbox.yaml", "forget-cursor", "trial", "--yes", "--reason", "the trial is over")
}

// change begins with the relay while the shop goes on, and compares what came
// with the documents.
func (a *adoption) change(ctx context.Context) error {
	relay, err := a.Start(ctx, "outbox", "relay", "--config", filepath.Join(a.folder, "outbox.yaml"))
	if err != nil {
		return err
	}
	topic := example.OpenTopic(a.Name + ".order")
	err = a.shop(ctx, sent+unsent, later)
	var states map[string]string
	if err == nil {
		states, err = read(ctx, topic, 2*(unsent+later))
	}
	if err := errors.Join(err, topic.Close()); err != nil {
		return err
	}
	left := 1
	err = example.Await(ctx, "the marks", func() (bool, error) { // they follow the delivery
		left, err = a.unpublished(ctx)
		return left == 0, err
	})
	if err := errors.Join(err, relay.Stop()); err != nil {
		return err
	}
	missing := 0
	for n := sent; n < sent+unsent+later; n++ {
		if id := fmt.Sprint("order-", n); states[id] != "placed paid " {
			missing++
		}
		delete(states, fmt.Sprint("order-", n))
	}
	fmt.Fprintf(a.Out, "orders=%d sent_before=%d sent_now=%d missing=%d phantom=%d left_to_the_old_publisher=%d\n",
		sent+unsent+later, sent, unsent+later, missing, len(states), left)
	if missing+len(states) > 0 {
		return errors.New("what Kafka holds differs from the orders in the database")
	}
	return nil
}

// unpublished is how many events the old publisher would send.
func (a *adoption) unpublished(ctx context.Context) (int, error) {
	n, err := a.DB.Collection("outbox").CountDocuments(ctx, bson.D{{Key: "published_at", Value: nil}})
	return int(n), err
}

// read reads so many events, and returns the states of each order in the order
// in which they came.
func read(ctx context.Context, topic *example.Topic, events int) (map[string]string, error) {
	states := map[string]string{}
	for topic.Count() < events {
		event, err := topic.Next(ctx)
		if err != nil {
			return nil, err
		}
		var order struct {
			ID    string `json:"order_id"`
			State string `json:"state"`
		}
		if err := json.Unmarshal(event.Payload, &order); err != nil {
			return nil, fmt.Errorf("reading event %s: %w", event.ID, err)
		}
		if order.ID != event.AggregateID {
			return nil, fmt.Errorf("reading event %s: it tells of another order than its key", event.ID)
		}
		states[order.ID] += order.State + " "
	}
	return states, nil
}
