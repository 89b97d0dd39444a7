package mongo_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/gooutbox/outbox/consumer"
	"github.com/gooutbox/outbox/consumer/dedupe"
	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/services"
	"github.com/gooutbox/outbox/internal/servicetest"
)

// The child of these tests is this binary again, which kills itself at a place
// or is killed by its parent.
const (
	roleVariable  = "DEDUPE_ROLE"
	dbVariable    = "DEDUPE_DATABASE"
	placeVariable = "DEDUPE_PLACE"
	fromVariable  = "DEDUPE_FROM"
	seedVariable  = "DEDUPE_SEED"
	countVariable = "DEDUPE_EVENTS"
)

// child runs the test binary in a role and returns its output as it comes.
func child(t *testing.T, db *mongo.Database, role string, env ...string) (*exec.Cmd, io.Reader) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestChild$", "-test.timeout=5m")
	cmd.Env = append(append(os.Environ(), roleVariable+"="+role, dbVariable+"="+db.Name()), env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, out
}

// TestChild is what the other processes run.
func TestChild(t *testing.T) {
	role := os.Getenv(roleVariable)
	if role == "" {
		t.Skip("this is the parent")
	}
	db := servicetest.Mongo(t).Database(os.Getenv(dbVariable))
	s := newStore(t, db)
	g, err := dedupe.New(s, dedupe.Config{Consumer: "c", Lease: 500 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	switch role {
	case "once", "batch", "newer":
		die := diesAt(os.Getenv(placeVariable))
		_, err = transactional[role](t.Context(), g, func(ctx context.Context) error {
			die("marked")
			if err := effect(ctx, db, "e"); err != nil {
				return err
			}
			die("effect")
			return nil
		})
		die("committed")
	case "reserve":
		die := diesAt(os.Getenv(placeVariable))
		_, err = g.Reserve(t.Context(), delivery("e"), func(ctx context.Context, _ bool) error {
			die("reserved")
			if err := effect(ctx, db, "e"); err != nil {
				return err
			}
			die("effect")
			return nil
		})
		die("marked")
	case "consume":
		consume(t, db, g)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// transactional are the calls that have the effect of the event e, of version 1,
// in one transaction with its mark.
var transactional = map[string]func(context.Context, *dedupe.Guard, dedupe.Effect) (dedupe.Verdict, error){
	"once": func(ctx context.Context, g *dedupe.Guard, fn dedupe.Effect) (dedupe.Verdict, error) {
		return g.Once(ctx, delivery("e"), fn)
	},
	"batch": func(ctx context.Context, g *dedupe.Guard, fn dedupe.Effect) (dedupe.Verdict, error) {
		verdicts, err := g.OnceBatch(ctx, []consumer.Delivery{delivery("e")}, func(ctx context.Context, _ []consumer.Delivery) error { return fn(ctx) })
		if err != nil {
			return 0, err
		}
		return verdicts[0], nil
	},
	"newer": func(ctx context.Context, g *dedupe.Guard, fn dedupe.Effect) (dedupe.Verdict, error) {
		d := delivery("e")
		d.AggregateVersion = 1
		verdict, _, err := g.IfNewer(ctx, d, fn)
		return verdict, err
	},
}

func diesAt(wanted string) func(string) {
	return func(place string) {
		if place == wanted {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
}

// effect counts in the business collection how often the event had its effect.
func effect(ctx context.Context, db *mongo.Database, id string) error {
	_, err := db.Collection("effects").UpdateByID(ctx, id, bson.D{{Key: "$inc", Value: bson.D{{Key: "n", Value: 1}}}}, options.UpdateOne().SetUpsert(true))
	return err
}

// effects tells how many events had their effect, and how many effects there
// were.
func effects(t *testing.T, db *mongo.Database) (events, total int) {
	t.Helper()
	cur, err := db.Collection("effects").Find(t.Context(), bson.D{})
	if err != nil {
		t.Fatal(err)
	}
	var docs []struct{ N int }
	if err := cur.All(t.Context(), &docs); err != nil {
		t.Fatal(err)
	}
	for _, doc := range docs {
		total += doc.N
	}
	return len(docs), total
}

// killed waits for a process that must have died by SIGKILL.
func killed(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	_ = cmd.Wait()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		t.Fatalf("the child ended by %v, not by its kill", cmd.ProcessState)
	}
}

func guard(t testing.TB, s dedupe.Store, cfg dedupe.Config) *dedupe.Guard {
	t.Helper()
	cfg.Consumer = "c"
	if cfg.Lease == 0 {
		cfg.Lease = 10 * time.Second // nobody dies in it
	}
	g, err := dedupe.New(s, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// The window between mark and effect, and that between effect and commit, are
// inside of the transaction: a process that dies there leaves nothing.
//
// The server keeps the locks of a transaction whose client has died until its
// time is over; here that is soon.
func TestAConsumerThatDiesInATransactionLosesAndRepeatsNothing(t *testing.T) {
	t.Parallel()
	server := servicetest.StartMongod(t, services.MongodConfig{Parameters: map[string]string{"transactionLifetimeLimitSeconds": "2"}})
	client := servicetest.Client(t, server.URL())
	for place, want := range map[string]dedupe.Verdict{"marked": dedupe.Fresh, "effect": dedupe.Fresh, "committed": dedupe.Repeated} {
		for mode, call := range transactional {
			t.Run(mode+" "+place, func(t *testing.T) {
				t.Parallel() // the server is closed after all of them
				db := servicetest.DatabaseOf(t, client)
				s := newStore(t, db)
				cmd, _ := child(t, db, mode, placeVariable+"="+place, "MONGODB_URL="+server.URL())
				killed(t, cmd)
				if _, total := effects(t, db); (total == 1) != (want == dedupe.Repeated) {
					t.Fatalf("%d effects after the kill", total)
				}
				verdict, err := call(t.Context(), guard(t, s, dedupe.Config{}), func(ctx context.Context) error { return effect(ctx, db, "e") })
				if err != nil || verdict != want {
					t.Errorf("the next delivery is %v, %v; want %v", verdict, err, want)
				}
				if _, total := effects(t, db); total != 1 {
					t.Errorf("%d effects, want 1", total)
				}
			})
		}
	}
}

// Outside of the transaction nobody can know: the policy decides, and what may
// be a second effect is said to be.
func TestAConsumerThatDiesInAReservation(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		place  string
		policy dedupe.CrashPolicy
		want   dedupe.Verdict
		total  int
	}{
		{"reserved", dedupe.TryAgain, dedupe.Fresh, 1},
		{"effect", dedupe.TryAgain, dedupe.Fresh, 2},
		{"marked", dedupe.TryAgain, dedupe.Repeated, 1},
		{"reserved", dedupe.Report, dedupe.Uncertain, 0},
		{"effect", dedupe.Report, dedupe.Uncertain, 1},
		{"marked", dedupe.Report, dedupe.Repeated, 1},
	} {
		t.Run(fmt.Sprint(c.place, c.policy), func(t *testing.T) {
			t.Parallel()
			db := servicetest.Database(t)
			s := newStore(t, db)
			cmd, _ := child(t, db, "reserve", placeVariable+"="+c.place)
			killed(t, cmd)
			g := guard(t, s, dedupe.Config{OnCrash: c.policy})
			saidAgain := false
			verdict, err := comeBack(t, g, delivery("e"), func(ctx context.Context, again bool) error {
				saidAgain = again
				return effect(ctx, db, "e")
			})
			if verdict != c.want || (err != nil) != (c.want == dedupe.Uncertain) {
				t.Errorf("the next delivery is %v, %v; want %v", verdict, err, c.want)
			}
			if _, total := effects(t, db); total != c.total {
				t.Errorf("%d effects, want %d", total, c.total)
			}
			if saidAgain != (c.want == dedupe.Fresh) {
				t.Errorf("again is %v", saidAgain)
			}
			if unknown, err := g.Unknowns(t.Context(), 10); err != nil || (len(unknown) == 1) != (c.want == dedupe.Uncertain) {
				t.Errorf("listed as unknown: %v, %v", unknown, err)
			}
		})
	}
}

// comeBack reserves until nobody else is at the event.
func comeBack(t *testing.T, g *dedupe.Guard, d consumer.Delivery, fn func(context.Context, bool) error) (dedupe.Verdict, error) {
	t.Helper()
	for {
		verdict, err := g.Reserve(t.Context(), d, fn)
		if verdict != dedupe.InFlight {
			return verdict, err
		}
		select {
		case <-time.After(core.ResultOf("", err).RetryAfter):
		case <-t.Context().Done():
			t.Fatal("the reservation doesn't run out")
		}
	}
}

// consume handles all events in an order of its own, from where the parent says,
// by ones and by batches, and says how far it came.
func consume(t *testing.T, db *mongo.Database, g *dedupe.Guard) {
	number := func(variable string) int {
		n, err := strconv.Atoi(os.Getenv(variable))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	seed := number(seedVariable)
	order := rand.New(rand.NewPCG(uint64(seed), 1)).Perm(number(countVariable))
	for at := number(fromVariable); at < len(order); {
		size := 1
		if rand.IntN(10) > 0 {
			size = min(1+rand.IntN(250), len(order)-at)
		}
		ds := make([]consumer.Delivery, size)
		for i := range ds {
			ds[i] = delivery(strconv.Itoa(order[at+i]))
		}
		var err error
		if size == 1 {
			_, err = g.Once(t.Context(), ds[0], func(ctx context.Context) error { return effect(ctx, db, ds[0].ID) })
		} else {
			_, err = g.OnceBatch(t.Context(), ds, func(ctx context.Context, fresh []consumer.Delivery) error {
				models := make([]mongo.WriteModel, len(fresh))
				for i, d := range fresh {
					models[i] = mongo.NewUpdateOneModel().SetUpsert(true).SetFilter(bson.D{{Key: "_id", Value: d.ID}}).
						SetUpdate(bson.D{{Key: "$inc", Value: bson.D{{Key: "n", Value: 1}}}})
				}
				_, err := db.Collection("effects").BulkWrite(ctx, models)
				return err
			})
		}
		if err != nil {
			t.Fatal(err)
		}
		at += size
		fmt.Printf("at %d\n", at)
	}
}

// Three consumers get the same events, each in another order, and are killed
// again and again; each goes on from the last event that it acknowledged.
func TestEachOfManyEventsHasItsEffectOnceThroughKills(t *testing.T) {
	t.Parallel()
	events := 10_000
	if testing.Short() {
		events = 600
	}
	const consumers, kills = 3, 6
	db := servicetest.Database(t)
	newStore(t, db)
	done := make(chan int, consumers)
	for seed := range consumers {
		go func() {
			died := 0
			for at := 0; at < events && t.Context().Err() == nil; {
				cmd, out := child(t, db, "consume", countVariable+"="+strconv.Itoa(events),
					fmt.Sprint(seedVariable, "=", seed), fmt.Sprint(fromVariable, "=", at))
				end := events + 1
				if died < kills {
					end = at + 1 + rand.IntN(events/kills)
				}
				for lines := bufio.NewScanner(out); lines.Scan(); {
					if n, err := strconv.Atoi(strings.TrimPrefix(lines.Text(), "at ")); err == nil {
						at = n
					}
					if at >= end {
						_ = cmd.Process.Kill()
						died++
						end = events + 1
					}
				}
				if err := cmd.Wait(); err != nil && at < events && cmd.ProcessState.ExitCode() > 0 {
					t.Errorf("consumer %d: %v", seed, err)
					break
				}
			}
			done <- died
		}()
	}
	for range consumers {
		if died := <-done; died == 0 {
			t.Error("a consumer was never killed")
		}
	}
	if n, total := effects(t, db); n != events || total != events {
		t.Errorf("%d events had their effect, %d effects in all; want %d of both", n, total, events)
	}
}
