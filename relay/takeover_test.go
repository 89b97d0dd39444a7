package relay_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/relay"
	"github.com/gooutbox/outbox/store/memory"
)

// former is a holder of the cursor that dies when the test says no more of it.
type former struct {
	k       *kit
	cursor  core.Cursor
	entries []core.Entry
}

// former acquires the cursor and reads n events.
func (k *kit) former(n int) *former {
	k.t.Helper()
	c, err := k.store.Acquire(k.t.Context(), core.AcquireRequest{Name: "r", Owner: "former"})
	if err != nil {
		k.t.Fatal(err)
	}
	f := &former{k: k, cursor: c}
	for len(f.entries) < n {
		b, err := c.Read(k.t.Context(), core.ReadLimit{})
		if err != nil {
			k.t.Fatal(err)
		}
		f.entries = append(f.entries, b.Entries...)
	}
	return f
}

// park parks entries, by their numbers.
func (f *former) park(state core.JobState, numbers ...int) {
	f.k.t.Helper()
	var parked []core.Parked
	for _, i := range numbers {
		parked = append(parked, core.Parked{Entry: f.entries[i], Sink: "s", State: state})
	}
	if err := f.cursor.Park(f.k.t.Context(), parked); err != nil {
		f.k.t.Fatal(err)
	}
}

// save saves the position behind n entries.
func (f *former) save(n int) {
	f.k.t.Helper()
	var marks []core.Mark
	for _, e := range f.entries[:n] {
		marks = append(marks, e.Mark)
	}
	if err := f.cursor.Save(f.k.t.Context(), marks); err != nil {
		f.k.t.Fatal(err)
	}
}

// claim claims the first n open jobs.
func (f *former) claim(n int) []*core.Claimed {
	f.k.t.Helper()
	open, err := f.cursor.OpenJobs(f.k.t.Context())
	if err != nil {
		f.k.t.Fatal(err)
	}
	claimed, err := f.cursor.ClaimJobs(f.k.t.Context(), open[:n], lease)
	if err != nil || len(claimed) != n {
		f.k.t.Fatalf("claimed %d of %d, %v", len(claimed), n, err)
	}
	return claimed
}

func (f *former) settle(c *core.Claimed, kind core.SettleKind) {
	f.k.t.Helper()
	if lost, err := f.k.store.Settle(f.k.t.Context(), []core.Settlement{{Job: c, Kind: kind}}); err != nil || len(lost) > 0 {
		f.k.t.Fatalf("settling: lost %v, %v", lost, err)
	}
}

// TestATakeOverKeepsTheOrderOfParkedKeys kills a holder at each step of parking
// and lets a relay go on.
func TestATakeOverKeepsTheOrderOfParkedKeys(t *testing.T) {
	for name, dies := range map[string]func(f *former){
		"before the park":                     func(*former) {},
		"after the park of the refused event": func(f *former) { f.park(core.JobReady, 0) },
		"after the park of its followers":     func(f *former) { f.park(core.JobReady, 0, 1, 2) },
		"after the save":                      func(f *former) { f.park(core.JobReady, 0, 1, 2); f.save(3) },
		"after the save of some":              func(f *former) { f.park(core.JobReady, 0, 1, 2); f.save(1) },
		"after the claim":                     func(f *former) { f.park(core.JobReady, 0, 1, 2); f.save(3); f.claim(1) },
		"after the claim, before the save":    func(f *former) { f.park(core.JobReady, 0); f.claim(1) },
		"after the claim of a run":            func(f *former) { f.park(core.JobReady, 0, 1, 2); f.claim(3) },
		"when a part of a run is settled":     func(f *former) { f.park(core.JobReady, 0, 1, 2); f.settle(f.claim(3)[0], core.Complete) },
		"when the head is given back and the others are not": func(f *former) {
			f.park(core.JobReady, 0, 1, 2)
			f.settle(f.claim(3)[0], core.GiveBack)
		},
		"after the job is settled": func(f *former) { f.park(core.JobReady, 0, 1); f.settle(f.claim(1)[0], core.Complete) },
		"after all jobs are settled, before the save": func(f *former) {
			f.park(core.JobReady, 0)
			f.settle(f.claim(1)[0], core.Complete)
		},
	} {
		for _, prefix := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", prefix ", prefix), func(t *testing.T) {
				inBubble(t, func(t *testing.T, k *kit) {
					k.sink.caps.PrefixPerKey = prefix
					k.append("a1", "a2", "a3", "b1")
					dies(k.former(4))
					pass(lease)
					r := k.start(k.parking)
					pass(2 * time.Second)
					equal(t, "the other key goes on at once", slices.Contains(k.sink.got(), "b1"), true)
					pass(time.Minute)
					k.append("a4")
					settle()
					want := []string{"a1", "a2", "a3", "a4"}
					for _, j := range k.jobs() { // what the former holder settled was delivered
						if j.State != core.JobCompleted {
							t.Errorf("%s is %s", j.EventID, j.State)
						}
						if len(k.sink.of(j.EventID)) == 0 {
							want = want[1:]
						}
					}
					equalIDs(t, "delivered", slices.DeleteFunc(k.sink.got(), func(id string) bool { return id == "b1" }), want...)
					pass(time.Second)
					equal(t, "events beyond the saved position", k.unsettled(), 0)
					r.stop()
				})
			})
		}
	}
}

func TestAJobThatIsLentToAFormerHolderBlocksItsKeyUntilItCameBack(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.append("a1", "a2", "b1")
		f := k.former(3)
		f.park(core.JobReady, 0)
		pass(lease - time.Second)
		f.claim(1)
		pass(time.Second)
		r := k.start(k.parking)
		began := time.Now()
		pass(lease)
		equalIDs(t, "delivered while it is lent", k.sink.got(), "b1")
		equalIDs(t, "jobs", k.states(), "a1=active", "a2=ready")
		pass(time.Minute)
		equalIDs(t, "delivered", k.sink.got(), "b1", "a1", "a2")
		a := k.sink.of("a1")[0]
		equal(t, "redelivered", a.lease.Redelivered, true)
		// Its lease, the grace, and a third of a lease until somebody looks.
		between(t, "came back after", a.at.Sub(began), lease+core.TakeBackGrace-time.Second, lease*4/3+core.TakeBackGrace+2*time.Second)
		r.stop()
	})
}

func TestAJobThatAFormerHolderSettlesLateLetsItsKeyGoOn(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.append("a1", "a2")
		f := k.former(2)
		f.park(core.JobReady, 0)
		pass(lease - time.Second)
		claimed := f.claim(1)
		pass(time.Second)
		r := k.start(k.parking)
		pass(5 * time.Second)
		f.settle(claimed[0], core.Complete)
		pass(openJobsEvery)
		equalIDs(t, "delivered", k.sink.got(), "a2")
		r.stop()
	})
}

// openJobsEvery is after how long a change of a job is seen that nobody tells.
const openJobsEvery = 16 * time.Second

func TestAFormerHolderThatWakesChangesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.append("a1", "a2", "b1")
		f := k.former(3)
		f.park(core.JobReady, 0, 1)
		claimed := f.claim(1)
		pass(lease)
		k.sink.reply = refuses(3, "a1")
		r := k.start(k.parking)
		pass(lease)
		if err := f.cursor.Park(t.Context(), []core.Parked{{Entry: f.entries[2], Sink: "s"}}); !errors.Is(err, core.ErrFenced) {
			t.Errorf("parking late: %v", err)
		}
		lost, err := k.store.Settle(t.Context(), []core.Settlement{{Job: claimed[0], Kind: core.Fail}})
		if err != nil || len(lost) != 1 {
			t.Errorf("settling late: lost %d, %v", len(lost), err)
		}
		pass(time.Minute)
		equalIDs(t, "delivered", k.sink.got(), "b1", "a1", "a2")
		r.stop()
	})
}

func TestNothingIsSentBeforeTheOpenJobsAreKnown(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		k.append("a1", "a2")
		f := k.former(2)
		f.park(core.JobReady, 0)
		pass(lease)
		k.faults.set(errDown, memory.OpOpenJobs)
		r := k.start(k.parking)
		pass(time.Minute)
		equal(t, "calls", k.sink.callCount(), 0)
		equal(t, "state", r.route().State, relay.Holding)
		k.faults.set(nil, memory.OpOpenJobs)
		pass(11 * time.Second)
		equalIDs(t, "delivered", k.sink.got(), "a1", "a2")
		k.faults.set(errDown, memory.OpOpenJobs)
		r.stop()
		began := time.Now()
		r = k.start(k.parking)
		pass(time.Second)
		r.stop() // also while it waits for them
		between(t, "stopping took", time.Since(began), 0, 2*time.Second)
	})
}

// TestParkingOutlastsFaultsOfTheStore lets each operation fail, and lose its
// answers, while a key is parked and comes back.
func TestParkingOutlastsFaultsOfTheStore(t *testing.T) {
	ops := []string{
		memory.OpPark, memory.OpSave, memory.OpOpenJobs, memory.OpClaimJobs, memory.OpSettle,
	}
	for _, op := range ops {
		for _, way := range []string{"fails", "loses answers"} {
			t.Run(op+" "+way, func(t *testing.T) {
				inBubble(t, func(t *testing.T, k *kit) {
					k.sink.reply = refuses(3, "a1", "a4")
					if way == "fails" {
						k.faults.set(errDown, op)
						if op == memory.OpOpenJobs {
							k.faults.set(nil, op)
							time.AfterFunc(time.Millisecond, func() { k.faults.set(errDown, op) })
						}
					} else {
						k.faults.loseNext(3, op)
					}
					r := k.start(k.parking)
					pass(100 * time.Millisecond)
					k.append("b1")
					k.append(numbered("a", 5)...)
					pass(10 * time.Second) // shorter than a lease
					k.faults.set(nil, op)
					k.append("a6", "b2")
					pass(5 * time.Minute)
					k.append("a7")
					settle()
					got := k.sink.got()
					equalIDs(t, "delivered of the key", slices.DeleteFunc(slices.Compact(got), func(id string) bool { return id[0] == 'b' }),
						numbered("a", 7)...)
					pass(time.Second)
					equal(t, "events beyond the saved position", k.unsettled(), 0)
					equal(t, "the operation was called", k.faults.count(op) > 0, true)
					for _, j := range k.jobs() {
						equal(t, j.EventID, j.State, core.JobCompleted)
					}
					r.stop()
				})
			})
		}
	}
}

func TestALostTermForgetsItsJobs(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		var ended time.Time
		k.sink.before = func(ctx context.Context, ls []core.Lease) {
			if ls[0].Event.ID == "a1" && ls[0].Attempt == 2 && ended.IsZero() {
				<-ctx.Done()
				ended = time.Now()
			}
		}
		k.sink.reply = refuses(1, "a1")
		k.append("a1", "a2")
		r := k.start(k.parking)
		pass(2 * time.Second)
		equalIDs(t, "jobs", k.states(), "a1=active", "a2=ready")
		all := append([]string{memory.OpAcquire, memory.OpRelease, memory.OpSettle, memory.OpExtend, memory.OpOpenJobs}, writes...)
		k.faults.set(errDown, all...)
		pass(lease)
		equal(t, "the call was cancelled", ended.IsZero(), false)
		k.faults.set(nil, all...)
		k.append("a3")
		pass(2 * time.Minute)
		equalIDs(t, "delivered", slices.Compact(k.sink.got()), "a1", "a2", "a3")
		equal(t, "states at the end", strings.Join(k.states(), " "), "a1=completed a2=completed a3=completed")
		r.stop()
	})
}
