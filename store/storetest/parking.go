package storetest

import (
	"slices"
	"time"

	"github.com/gooutbox/outbox/core"
)

// parkingRules are those of jobs that a cursor parks: which are open, how its
// holder claims them, and what becomes of them. What parking means for reading is
// tested with the log.
func parkingRules() []rule {
	return slices.Concat(openJobsRules(), claimJobsRules(), parkedJobRules(), parkedKeyRules(), parkedActRules())
}

// parkingKit is what a rule of parked jobs works with: a cursor, and what it has
// read.
type parkingKit struct {
	*queueKit
	c       core.Cursor
	entries map[string]core.Entry
}

// parking is a rule that works with parked jobs. The log holds these events, each
// with the key that its name begins with, such as "a1".
func parking(name string, events []string, check func(*parkingKit), needs ...need) rule {
	return queueRule(name, func(q *queueKit) {
		k := &parkingKit{queueKit: q, c: q.cursor(), entries: map[string]core.Entry{}}
		for _, id := range events {
			k.commit(keyedEvent(id, id[:1]))
		}
		for _, e := range k.read(k.c, len(events)) {
			k.entries[e.Event.ID] = e
		}
		check(k)
	}, needs...)
}

// ready is an event that is parked to be delivered now.
func (k *parkingKit) ready(id string) core.Parked {
	return core.Parked{Entry: k.entries[id], Sink: sinkName, State: core.JobReady}
}

// failure is an event that is parked as failed.
func (k *parkingKit) failure(id string, holds bool) core.Parked {
	return core.Parked{Entry: k.entries[id], Sink: sinkName, State: core.JobFailed, Attempts: 1, Failure: refusal, Holds: holds}
}

func (k *parkingKit) parkAll(entries ...core.Parked) []core.Parked {
	k.Helper()
	if err := k.c.Park(k.ctx, entries); err != nil {
		k.Fatalf("parking: %v", err)
	}
	return entries
}

// parkReady parks events to be delivered now.
func (k *parkingKit) parkReady(ids ...string) {
	k.Helper()
	var entries []core.Parked
	for _, id := range ids {
		entries = append(entries, k.ready(id))
	}
	k.parkAll(entries...)
}

// open fails unless exactly the jobs of these events are open, in this order.
func (k *parkingKit) open(events ...string) []core.OpenJob {
	k.Helper()
	jobs, err := k.c.OpenJobs(k.ctx)
	if err != nil {
		k.Fatalf("listing open jobs: %v", err)
	}
	if got := eventsOfOpen(jobs); !slices.Equal(got, events) {
		k.Fatalf("open are %v, want %v", got, events)
	}
	return jobs
}

func eventsOfOpen(jobs []core.OpenJob) []string {
	ids := make([]string, len(jobs))
	for i, o := range jobs {
		ids[i] = o.EventID
	}
	return ids
}

// lend fails unless the cursor claims exactly these of the jobs.
func (k *parkingKit) lend(jobs []core.OpenJob, events ...string) []*core.Claimed {
	k.Helper()
	got, err := k.c.ClaimJobs(k.ctx, jobs, lease)
	if err != nil {
		k.Fatalf("claiming open jobs: %v", err)
	}
	if !slices.Equal(eventsOfClaims(got), events) {
		k.Fatalf("claimed %v, want %v", eventsOfClaims(got), events)
	}
	return got
}

// wantDue fails unless a job is due in about d.
func (k *parkingKit) wantDue(o core.OpenJob, d time.Duration) {
	k.Helper()
	if o.Due > d || o.Due < d-time.Minute {
		k.Errorf("%s, %s, is due in %s, want %s", o.EventID, o.State, o.Due, d)
	}
}

func (k *parkingKit) wantOpenState(o core.OpenJob, want core.JobState, attempts int) {
	k.Helper()
	if o.State != want || o.Attempts != attempts {
		k.Errorf("%s is %s after %d attempts, want %s after %d", o.EventID, o.State, o.Attempts, want, attempts)
	}
}

func openJobsRules() []rule {
	return []rule{
		parking("OpenJobsComeByPosition", []string{"a1", "b1", "a2", "c1"}, func(k *parkingKit) {
			delayed := k.ready("a2")
			delayed.Delay, delayed.Attempts, delayed.MaxAttempts, delayed.Failure = time.Hour, 3, 7, refusal
			parked := k.parkAll(k.failure("c1", true), delayed, k.ready("a1"), k.ready("b1"))
			order := map[string]core.Parked{}
			for _, p := range parked {
				order[p.Entry.Event.ID] = p
			}
			for _, o := range k.open("a1", "b1", "a2", "c1") {
				p := order[o.EventID]
				if o.ID == "" || o.ID != p.ID || o.Ref == nil || p.Ref == nil || o.Key != o.EventID[:1] ||
					o.Position != p.Entry.Mark.Position() || o.State != p.State || o.Attempts != p.Attempts || o.Failure.Reason != p.Failure.Reason {
					k.Errorf("listed %+v, parked %+v", o, p)
				}
			}
		}),
		parking("OpenJobsTellWhenTheyAreDue", []string{"a1", "b1"}, func(k *parkingKit) {
			delayed := k.ready("a1")
			delayed.Delay = time.Hour
			k.parkAll(delayed, k.ready("b1"))
			open := k.open("a1", "b1")
			k.wantDue(open[0], time.Hour)
			k.wantDue(open[1], 0)
			k.elapse(2 * time.Hour)
			if o := k.open("a1", "b1")[0]; o.Due > 0 {
				k.Errorf("it is due in %s an hour later than it was to be", o.Due)
			}
		}, elapsing),
		parking("OpenJobsTellWhenALeaseIsTakenBack", []string{"a1"}, func(k *parkingKit) {
			k.parkReady("a1")
			k.lend(k.open("a1"), "a1")
			o := k.open("a1")[0]
			k.wantOpenState(o, core.JobActive, 0)
			if o.Due > lease+core.TakeBackGrace || o.Due < lease {
				k.Errorf("it can come back in %s, want %s and the grace", o.Due, lease)
			}
		}),
		parking("WhatIsFinalIsNotOpen", []string{"a1", "b1", "c1", "d1"}, func(k *parkingKit) {
			k.parkAll(k.ready("a1"), k.ready("b1"), k.ready("c1"), k.failure("d1", false))
			got := k.lend(k.open("a1", "b1", "c1"), "a1", "b1", "c1")
			k.settle(core.Settlement{Kind: core.Complete}, got[0])
			k.settle(core.Settlement{Kind: core.Fail, Failure: refusal}, got[1])
			k.settle(core.Settlement{Kind: core.EndUnknown, Failure: refusal}, got[2])
			k.open()
		}),
		parking("WhatHoldsItsKeyIsOpen", []string{"a1", "b1"}, func(k *parkingKit) {
			p := k.parkAll(k.failure("a1", true), k.ready("b1"))
			got := k.lend(k.open("a1", "b1")[1:], "b1")
			k.settle(core.Settlement{Kind: core.Fail, Failure: refusal, Holds: true}, got...)
			for i, o := range k.open("a1", "b1") {
				k.wantOpenState(o, core.JobFailed, 1)
				if k.h.Job != nil && !k.info(p[i].ID).Holds {
					k.Errorf("people are not told that %s holds its key", o.EventID)
				}
			}
		}),
		parking("AnotherCursorsJobsAreNotListed", []string{"a1"}, func(k *parkingKit) {
			k.parkReady("a1")
			open := k.open("a1")
			k.c = k.acquire(k.store, core.AcquireRequest{Name: "other", Owner: "me", Start: core.Start{Now: true}})
			k.open()
			k.lend(open)
		}, cursors),
		parking("WhatMovesIsNeverMissing", []string{"a1", "b1", "c1", "d1"}, func(k *parkingKit) {
			k.parkReady("a1", "b1", "c1", "d1")
			open := k.open("a1", "b1", "c1", "d1")
			stop, done := make(chan struct{}), make(chan error, 1)
			go func() { done <- k.move(open, stop) }()
			for range 50 {
				k.open("a1", "b1", "c1", "d1")
			}
			close(stop)
			if err := <-done; err != nil {
				k.Error(err)
			}
		}),
	}
}

// move lends jobs and gives them back until it is stopped.
func (k *parkingKit) move(open []core.OpenJob, stop <-chan struct{}) error {
	for i := 0; ; i++ {
		select {
		case <-stop:
			return nil
		default:
		}
		got, err := k.c.ClaimJobs(k.ctx, open[i%len(open):], lease)
		if err != nil {
			return err
		}
		var back []core.Settlement
		for _, c := range got {
			back = append(back, core.Settlement{Job: c, Kind: core.GiveBack})
		}
		if _, err := k.queue.Settle(k.ctx, back); err != nil {
			return err
		}
	}
}
