package relay_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/relay"
	"github.com/gooutbox/outbox/store/memory"
)

// slowLists is a log whose listings of open jobs tell how things were some time
// ago: each but the first of a term takes so long.
type slowLists struct {
	core.Log
	takes time.Duration
}

func (l slowLists) Acquire(ctx context.Context, req core.AcquireRequest) (core.Cursor, error) {
	c, err := l.Log.Acquire(ctx, req)
	if err != nil {
		return nil, err
	}
	return &slowCursor{Cursor: c, takes: l.takes}, nil
}

type slowCursor struct {
	core.Cursor
	takes  time.Duration
	listed bool
}

func (c *slowCursor) OpenJobs(ctx context.Context) ([]core.OpenJob, error) {
	jobs, err := c.Cursor.OpenJobs(ctx)
	if c.listed {
		time.Sleep(c.takes)
	}
	c.listed = true
	return jobs, err
}

// listsSlowly lets listings take a time: the first of them from the 15th second
// on.
func (k *kit) listsSlowly(takes time.Duration) func(*relay.Config) {
	return func(c *relay.Config) {
		k.parking(c)
		c.Log = slowLists{k.store, takes}
	}
}

const firstListing = 15 * time.Second

func TestAJobThatEndsWhileTheOpenOnesAreListedStaysGone(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.reply = refuses(1, "a1")
		r := k.start(k.listsSlowly(10 * time.Second))
		pass(firstListing - 500*time.Millisecond)
		k.append("a1")
		pass(400 * time.Millisecond)
		equalIDs(t, "jobs when the listing begins", k.states(), "a1=ready")
		pass(2 * time.Second)
		equalIDs(t, "jobs while it is under way", k.states(), "a1=completed")
		k.append("a2")
		settle()
		equalIDs(t, "delivered while it is under way", k.sink.got(), "a1", "a2")
		pass(10 * time.Second)
		k.append("a3")
		settle()
		equalIDs(t, "delivered after it", k.sink.got(), "a1", "a2", "a3")
		equal(t, "jobs", len(k.jobs()), 1)
		equal(t, "claims", k.faults.count(memory.OpClaimJobs), 1)
		r.stop()
	})
}

func TestAJobThatIsParkedWhileTheOpenOnesAreListedStays(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.reply = refuses(1, "a1")
		r := k.start(k.listsSlowly(5*time.Second), func(c *relay.Config) {
			c.Routes[0].Backoff = relay.Backoff{Initial: 20 * time.Second, Max: 20 * time.Second}
		})
		pass(firstListing + time.Second)
		k.append("a1")
		pass(5 * time.Second) // the listing, which doesn't have it, is over
		k.append("a2")
		pass(time.Second)
		equalIDs(t, "delivered", k.sink.got())
		equalIDs(t, "jobs", k.states(), "a1=ready", "a2=ready")
		pass(time.Minute)
		equalIDs(t, "delivered at last", k.sink.got(), "a1", "a2")
		r.stop()
	})
}

func TestWhatBecameOfAJobWhileTheOpenOnesAreListedIsNewerThanTheListing(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.reply = refuses(2, "a1")
		k.sink.before = func(_ context.Context, ls []core.Lease) {
			if ls[0].Attempt == 2 {
				time.Sleep(3 * time.Second)
			}
		}
		r := k.start(k.listsSlowly(4 * time.Second))
		pass(firstListing - 1300*time.Millisecond)
		k.append("a1") // tried again after 0.8 to 1.2 seconds, for three seconds
		pass(1300 * time.Millisecond)
		equalIDs(t, "jobs when the listing begins", k.states(), "a1=active")
		pass(3500 * time.Millisecond)
		equalIDs(t, "jobs while it is under way", k.states(), "a1=ready")
		pass(2500 * time.Millisecond)
		equalIDs(t, "delivered when it was due", k.sink.got(), "a1")
		r.stop()
	})
}

// A listing tells of a job whose park has not answered.
func TestAJobThatIsBeingParkedIsListedOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.reply = refuses(1, "a1")
		r := k.start(k.parking)
		pass(firstListing - 100*time.Millisecond)
		k.faults.loseNext(1<<30, memory.OpPark)
		k.append("a1", "a2")
		pass(2 * time.Second)
		equalIDs(t, "jobs", k.states(), "a1=ready", "a2=ready")
		equal(t, "parked in status", r.route().Parked, 2)
		equal(t, "tries", len(k.sink.all()), 1)
		k.faults.loseNext(0, memory.OpPark)
		pass(20 * time.Second)
		equalIDs(t, "delivered", k.sink.got(), "a1", "a2")
		equal(t, "claims", k.faults.count(memory.OpClaimJobs), 2)
		equal(t, "parked in status at the end", r.route().Parked, 0)
		r.stop()
	})
}

// A key is the queue's from before its first park is written.
func TestAKeyIsNotReleasedWhileItsEventsAreBeingParked(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.reply = refuses(1, "a1")
		k.faults.onEach(func(op string) error {
			if op == memory.OpPark {
				time.Sleep(5 * time.Second)
			}
			return nil
		})
		r := k.start(k.parking)
		k.append("a1")
		pass(time.Second)
		k.append("a2", "b1")
		settle()
		equalIDs(t, "delivered while the park is written", k.sink.got(), "b1")
		pass(6 * time.Second)
		// The first job has been delivered, and the second is being parked.
		equalIDs(t, "delivered while the next park is written", k.sink.got(), "b1", "a1")
		k.append("a3")
		settle()
		pass(time.Minute)
		equalIDs(t, "delivered", k.sink.got(), "b1", "a1", "a2", "a3")
		r.stop()
	})
}

func TestAJobThatIsLentBlocksItsKeyAlsoBehindTheHead(t *testing.T) {
	for _, prefix := range []bool{false, true} {
		inBubbleNamed(t, prefix, func(t *testing.T, k *kit) {
			k.sink.caps.PrefixPerKey = prefix
			k.append("a1", "a2", "a3", "b1")
			f := k.former(4)
			f.park(core.JobFailed, 0)
			f.park(core.JobReady, 1)
			pass(lease - time.Second)
			f.claim(1) // a2, which it may be sending
			pass(time.Second)
			r := k.start(k.parking)
			pass(time.Second)
			k.retry("a1") // becomes the head
			pass(lease - 2*time.Second)
			equalIDs(t, "delivered while the second is lent", k.sink.got(), "b1")
			equalIDs(t, "jobs", k.states(), "a1=ready", "a2=active", "a3=ready")
			pass(time.Minute)
			equalIDs(t, "delivered", k.sink.got(), "b1", "a1", "a2", "a3")
			r.stop()
		})
	}
}

func inBubbleNamed(t *testing.T, prefix bool, test func(t *testing.T, k *kit)) {
	name := "one by one"
	if prefix {
		name = "prefix per key"
	}
	t.Run(name, func(t *testing.T) { inBubble(t, test) })
}

func TestAClaimThatFailsIsTriedAgainSoon(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.reply = refuses(1, "a1")
		failed := false
		k.faults.onEach(func(op string) error {
			if op != memory.OpClaimJobs || failed {
				return nil
			}
			failed = true
			return errors.New("no primary")
		})
		k.append("a1", "a2")
		r := k.start(k.parking)
		pass(4 * time.Second)
		equalIDs(t, "delivered", k.sink.got(), "a1", "a2")
		r.stop()
	})
}

func TestAJobThatIsNotToBeHadMakesTheHolderLook(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.reply = refuses(1, "a1")
		k.append("a1", "a2")
		r := k.start(func(c *relay.Config) {
			k.parking(c)
			c.Queue = silent{k.store} // nobody tells of the discard
		})
		settle()
		k.discard("a1")
		pass(4 * time.Second)
		equalIDs(t, "delivered", k.sink.got(), "a2")
		r.stop()
	})
}

func TestJobsComeBackAlsoWhenTheirSinkGotAnotherName(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.append("a1", "a2")
		f := k.former(2)
		f.park(core.JobReady, 0, 1)
		f.claim(1)
		pass(lease)
		r := k.start(k.parking, func(c *relay.Config) {
			c.Sinks = map[string]core.Sink{"renamed": k.sink}
			c.Routes[0].Sink = "renamed"
		})
		pass(time.Minute)
		equalIDs(t, "delivered", k.sink.got(), "a1", "a2")
		r.stop()
	})
}

// A relay without a queue can't deliver what one with a queue has parked.
func TestARouteWithoutAQueueWaitsForParkedEvents(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.append("a1", "a2", "b1")
		f := k.former(3)
		f.park(core.JobReady, 0)
		pass(lease)
		r := k.start()
		pass(time.Hour)
		equal(t, "calls", k.sink.callCount(), 0)
		equal(t, "state", r.route().State, relay.Holding)
		if r.route().StoreError == "" {
			t.Error("the status doesn't tell why")
		}
		equal(t, "lines", k.log.with(slog.LevelWarn, "waiting"), 1)
		k.discard("a1")
		pass(11 * time.Second)
		equal(t, "delivered", len(k.sink.got()), 2)
		r.stop()
	})
}

// What a listing doesn't tell any more may be in a claim that is under way.
func TestAJobThatEndsWhileItIsClaimedLetsItsKeyGoOn(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.reply = refuses(1, "a1")
		k.faults.onEach(func(op string) error {
			if op == memory.OpClaimJobs {
				time.Sleep(5 * time.Second)
			}
			return nil
		})
		k.append("a1", "a2")
		r := k.start(k.parking)
		pass(1500 * time.Millisecond)
		equal(t, "claims", k.faults.count(memory.OpClaimJobs), 1)
		listed := k.faults.count(memory.OpOpenJobs)
		k.discard("a1")
		pass(2 * time.Second)
		equal(t, "listings while it is claimed", k.faults.count(memory.OpOpenJobs)-listed, 1)
		pass(20 * time.Second)
		equalIDs(t, "delivered", k.sink.got(), "a2")
		equal(t, "parked in status", r.route().Parked, 0)
		r.stop()
	})
}

// A run of a key's jobs is used up to the first that somebody else has.
func TestAGapInARunOfJobsEndsIt(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.sink.caps.PrefixPerKey = true
		k.append("a1", "a2", "a3", "b1")
		f := k.former(4)
		f.park(core.JobReady, 0, 1, 2)
		open, err := f.cursor.OpenJobs(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		pass(lease)
		taken := false
		k.faults.onEach(func(op string) error {
			if op == memory.OpClaimJobs && !taken {
				taken = true
				if got, err := f.cursor.ClaimJobs(t.Context(), open[1:2], lease); err != nil || len(got) != 1 {
					t.Errorf("claimed %d, %v", len(got), err)
				}
			}
			return nil
		})
		r := k.start(k.parking)
		pass(lease)
		equalIDs(t, "delivered while the second is lent", slices.DeleteFunc(k.sink.got(), func(id string) bool { return id == "b1" }), "a1")
		equalIDs(t, "jobs", k.states(), "a1=completed", "a2=active", "a3=ready")
		equal(t, "attempts of what was given back", k.jobs()[2].Attempts, 0)
		pass(time.Minute)
		equalIDs(t, "delivered", slices.DeleteFunc(k.sink.got(), func(id string) bool { return id == "b1" }), "a1", "a2", "a3")
		r.stop()
	})
}
