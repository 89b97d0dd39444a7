package storetest_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/store/storetest"
)

// parkingFaults are stores that break one rule of parked jobs each, by name.
var parkingFaults = map[string]func(*brokenParking){
	"ListsInTheOrderOfIDs": func(b *brokenParking) {
		b.listing(func(jobs []core.OpenJob) []core.OpenJob {
			slices.SortFunc(jobs, func(a, b core.OpenJob) int { return strings.Compare(b.ID, a.ID) })
			return jobs
		})
	},
	"ListsWhatIsReadyAlone": func(b *brokenParking) {
		b.without(func(o core.OpenJob) bool { return o.State != core.JobReady })
	},
	"ListsWhatIsDueAlone": func(b *brokenParking) {
		b.without(func(o core.OpenJob) bool { return o.State == core.JobReady && o.Due > 0 })
	},
	"ForgetsWhatHolds": func(b *brokenParking) {
		b.without(func(o core.OpenJob) bool { return o.State == core.JobFailed })
	},
	"ListsAllThatFailed": func(b *brokenParking) {
		b.onOpen = func(ctx context.Context, c core.Cursor) ([]core.OpenJob, error) {
			jobs, err := c.OpenJobs(ctx)
			if err != nil {
				return nil, err
			}
			failed, _, err := b.Jobs(ctx, core.JobFilter{Cursor: "route", State: core.JobFailed}, "", 0)
			for _, f := range failed {
				if !slices.ContainsFunc(jobs, func(o core.OpenJob) bool { return o.ID == f.ID }) {
					jobs = append(jobs, core.OpenJob{ID: f.ID, EventID: f.EventID, Key: f.AggregateID, State: f.State, Ref: f.ID})
				}
			}
			return jobs, err
		}
	},
	"TellsNoDueTimes": func(b *brokenParking) {
		b.listing(each(func(o *core.OpenJob) { o.Due = 0 }))
	},
	"TakesBackAtTheEndOfTheLease": func(b *brokenParking) {
		b.listing(each(func(o *core.OpenJob) {
			if o.State == core.JobActive {
				o.Due -= 2 * core.TakeBackGrace
			}
		}))
	},
	"TellsNoKeys":     func(b *brokenParking) { b.listing(each(func(o *core.OpenJob) { o.Key = "" })) },
	"TellsNoAttempts": func(b *brokenParking) { b.listing(each(func(o *core.OpenJob) { o.Attempts = 0 })) },
	"ListsByState": func(b *brokenParking) {
		b.onOpen = func(ctx context.Context, c core.Cursor) ([]core.OpenJob, error) {
			active, err := c.OpenJobs(ctx)
			if err != nil {
				return nil, err
			}
			time.Sleep(time.Millisecond)
			jobs, err := c.OpenJobs(ctx)
			wanted := func(jobs []core.OpenJob, state func(core.JobState) bool) []core.OpenJob {
				return slices.DeleteFunc(jobs, func(o core.OpenJob) bool { return !state(o.State) })
			}
			jobs = append(wanted(jobs, func(s core.JobState) bool { return s != core.JobActive }),
				wanted(active, func(s core.JobState) bool { return s == core.JobActive })...)
			slices.SortFunc(jobs, func(a, b core.OpenJob) int { return a.Position.Compare(b.Position) })
			return jobs, err
		}
	},
	"LendsTwice": func(b *brokenParking) {
		lent := map[string]*core.Claimed{}
		b.onClaimJobs = func(ctx context.Context, c core.Cursor, jobs []core.OpenJob, lease time.Duration) ([]*core.Claimed, error) {
			got, err := c.ClaimJobs(ctx, jobs, lease)
			b.mu.Lock()
			defer b.mu.Unlock()
			for _, one := range got {
				lent[one.ID] = one
			}
			var all []*core.Claimed
			for _, o := range jobs {
				if info, _ := b.Job(ctx, o.ID); info.State == core.JobActive && lent[o.ID] != nil {
					all = append(all, lent[o.ID])
				}
			}
			return all, err
		}
	},
	"LendsInTheOrderOfIDs": func(b *brokenParking) {
		b.lending(func(got []*core.Claimed) []*core.Claimed {
			slices.SortFunc(got, func(a, b *core.Claimed) int { return strings.Compare(a.ID, b.ID) })
			return got
		})
	},
	"LendsWhatIsDueAlone": func(b *brokenParking) {
		b.onClaimJobs = func(ctx context.Context, c core.Cursor, jobs []core.OpenJob, lease time.Duration) ([]*core.Claimed, error) {
			return c.ClaimJobs(ctx, slices.DeleteFunc(slices.Clone(jobs), func(o core.OpenJob) bool { return o.Due > 0 }), lease)
		}
	},
	"LendsWithoutRoute":   func(b *brokenParking) { b.lending(lent(func(l *core.Lease) { l.Route = "" })) },
	"LendsWithoutFence":   func(b *brokenParking) { b.lending(lent(func(l *core.Lease) { l.Fence = 0 })) },
	"LendsUnmarkedRepeat": func(b *brokenParking) { b.lending(lent(func(l *core.Lease) { l.Redelivered = false })) },
	"LendsUnmarkedRetry":  func(b *brokenParking) { b.lending(lent(func(l *core.Lease) { l.Redriven = false })) },
	"LendsToWorkers": func(b *brokenParking) {
		b.onClaim = func(ctx context.Context, req core.ClaimRequest) ([]*core.Claimed, error) {
			got, err := b.Store.Claim(ctx, req)
			b.mu.Lock()
			c := b.newest
			b.mu.Unlock()
			if err != nil || c == nil || len(got) > 0 {
				return got, err
			}
			jobs, err := c.OpenJobs(ctx)
			if err != nil {
				return nil, err
			}
			return c.ClaimJobs(ctx, jobs[:min(req.Max, len(jobs))], req.Lease)
		}
	},
	"ParksWithoutDelay":     func(b *brokenParking) { b.parking(func(p *core.Parked) { p.Delay = 0 }) },
	"ParksWithoutAttempts":  func(b *brokenParking) { b.parking(func(p *core.Parked) { p.Attempts = 0 }) },
	"ParksWithoutLimit":     func(b *brokenParking) { b.parking(func(p *core.Parked) { p.MaxAttempts = 0 }) },
	"ParksWithoutHolding":   func(b *brokenParking) { b.parking(func(p *core.Parked) { p.Holds = false }) },
	"ParksUnmarkedRepeat":   func(b *brokenParking) { b.parking(func(p *core.Parked) { p.Redelivered = false }) },
	"ParksEverythingFailed": func(b *brokenParking) { b.parking(func(p *core.Parked) { p.State = core.JobFailed }) },
	"ParksUnfenced": func(b *brokenParking) {
		b.onPark = func(ctx context.Context, c core.Cursor, entries []core.Parked) error {
			b.mu.Lock()
			newest := b.newest
			b.mu.Unlock()
			return newest.Park(ctx, entries)
		}
	},
	"ParkTellsNoJob": func(b *brokenParking) {
		b.onPark = func(ctx context.Context, c core.Cursor, entries []core.Parked) error {
			return c.Park(ctx, slices.Clone(entries))
		}
	},
	"ParkWakes": func(b *brokenParking) {
		wake := b.watching(func(w core.Wake) core.Wake { return w })
		b.onPark = func(ctx context.Context, c core.Cursor, entries []core.Parked) error {
			defer wake()
			return c.Park(ctx, entries)
		}
	},
	"WakesForAnySink": func(b *brokenParking) {
		b.watching(func(w core.Wake) core.Wake {
			if w.Sink == "mail" {
				w.Sink = ""
			}
			return w
		})
	},
	"SettlesWithoutHolding": func(b *brokenParking) { b.settling(func(s *core.Settlement) { s.Holds = false }) },
	"HoldsAlways":           func(b *brokenParking) { b.settling(func(s *core.Settlement) { s.Holds = true }) },
	"ReadsParkedAsNew":      func(b *brokenParking) { b.reading(func(e *core.Entry, _ map[string]bool) { e.Queued = false }) },
	"ReadsSettledAsNew": func(b *brokenParking) {
		b.reading(func(e *core.Entry, known map[string]bool) { e.Queued = known[e.Event.ID] })
	},
	"HidesTheWholeKey": func(b *brokenParking) {
		b.reading(func(e *core.Entry, known map[string]bool) {
			for id := range known {
				e.Queued = e.Queued || id[:1] == e.Event.ID[:1]
			}
		})
	},
	"HidesAllBefore": func(b *brokenParking) {
		b.reading(func(e *core.Entry, known map[string]bool) { e.Queued = e.Queued || len(known) > 0 && e.Event.ID < "b" })
	},
}

func each(change func(*core.OpenJob)) func([]core.OpenJob) []core.OpenJob {
	return func(jobs []core.OpenJob) []core.OpenJob {
		for i := range jobs {
			change(&jobs[i])
		}
		return jobs
	}
}

func lent(change func(*core.Lease)) func([]*core.Claimed) []*core.Claimed {
	return func(got []*core.Claimed) []*core.Claimed {
		for _, c := range got {
			change(&c.Lease)
		}
		return got
	}
}

// TestSuiteFindsBrokenParking is TestSuiteFindsBrokenStores for parked jobs.
func TestSuiteFindsBrokenParking(t *testing.T) {
	names := make([]string, 0, len(parkingFaults))
	for name := range parkingFaults {
		names = append(names, name)
	}
	slices.Sort(names)
	runBroken(t, names, 16, func(t *testing.T, fault string) {
		h := queueHarness(func() *clocked { return newBrokenParking(parkingFaults[fault]) })
		h.Timeout = 10 * time.Second
		storetest.RunParking(t, h)
	}, func(fault string) (must, may []string) {
		for rule := range strings.FieldsSeq(parkingFindings[fault]) {
			must = append(must, "Parking/"+rule)
		}
		return must, []string{"Parking/WhatMovesIsNeverMissing"} // chance decides
	})
}

// brokenParking is a memory store whose cursors and queue are replaced in part.
type brokenParking struct {
	*brokenQueue
	onOpen      func(ctx context.Context, c core.Cursor) ([]core.OpenJob, error)
	onClaimJobs func(ctx context.Context, c core.Cursor, jobs []core.OpenJob, lease time.Duration) ([]*core.Claimed, error)
	onPark      func(ctx context.Context, c core.Cursor, entries []core.Parked) error
	onEntry     func(e *core.Entry, known map[string]bool)

	mu     sync.Mutex
	newest core.Cursor
	known  map[string]bool // ids of events that are parked
}

func newBrokenParking(build func(*brokenParking)) *clocked {
	b := &brokenParking{known: map[string]bool{}}
	c := newBrokenQueue(func(q *brokenQueue) {
		b.brokenQueue = q
		build(b)
	})
	c.onAcquire = func(inner core.Cursor) core.Cursor {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.newest = inner
		return &brokenTerm{inner, b}
	}
	return c
}

// listing changes what OpenJobs tells.
func (b *brokenParking) listing(change func([]core.OpenJob) []core.OpenJob) {
	b.onOpen = func(ctx context.Context, c core.Cursor) ([]core.OpenJob, error) {
		jobs, err := c.OpenJobs(ctx)
		return change(jobs), err
	}
}

// without leaves jobs out of what OpenJobs tells.
func (b *brokenParking) without(forgotten func(core.OpenJob) bool) {
	b.listing(func(jobs []core.OpenJob) []core.OpenJob { return slices.DeleteFunc(jobs, forgotten) })
}

// lending changes what ClaimJobs gives.
func (b *brokenParking) lending(change func([]*core.Claimed) []*core.Claimed) {
	b.onClaimJobs = func(ctx context.Context, c core.Cursor, jobs []core.OpenJob, lease time.Duration) ([]*core.Claimed, error) {
		got, err := c.ClaimJobs(ctx, jobs, lease)
		return change(got), err
	}
}

// parking changes what is parked.
func (b *brokenParking) parking(change func(*core.Parked)) {
	b.onPark = func(ctx context.Context, c core.Cursor, entries []core.Parked) error {
		changed := slices.Clone(entries)
		for i := range changed {
			change(&changed[i])
		}
		err := c.Park(ctx, changed)
		for i := range changed {
			entries[i].ID, entries[i].Ref = changed[i].ID, changed[i].Ref
		}
		return err
	}
}

// reading changes what is read.
func (b *brokenParking) reading(change func(e *core.Entry, known map[string]bool)) {
	b.onEntry = change
}

// watching changes what Watch tells, and returns what wakes everybody.
func (b *brokenParking) watching(change func(core.Wake) core.Wake) (wake func()) {
	var mu sync.Mutex
	var all []func(core.Wake)
	b.onWatch = func(ctx context.Context, wake func(core.Wake)) error {
		mu.Lock()
		all = append(all, wake)
		mu.Unlock()
		return b.Store.Watch(ctx, func(w core.Wake) { wake(change(w)) })
	}
	return func() {
		mu.Lock()
		defer mu.Unlock()
		for _, wake := range all {
			wake(core.Wake{Sink: "mail"})
		}
	}
}

// brokenTerm is a term of a brokenParking.
type brokenTerm struct {
	core.Cursor
	b *brokenParking
}

func (c *brokenTerm) OpenJobs(ctx context.Context) ([]core.OpenJob, error) {
	if c.b.onOpen != nil {
		return c.b.onOpen(ctx, c.Cursor)
	}
	return c.Cursor.OpenJobs(ctx)
}

func (c *brokenTerm) ClaimJobs(ctx context.Context, jobs []core.OpenJob, lease time.Duration) ([]*core.Claimed, error) {
	if c.b.onClaimJobs != nil {
		return c.b.onClaimJobs(ctx, c.Cursor, jobs, lease)
	}
	return c.Cursor.ClaimJobs(ctx, jobs, lease)
}

func (c *brokenTerm) Park(ctx context.Context, entries []core.Parked) error {
	c.b.mu.Lock()
	for _, p := range entries {
		c.b.known[p.Entry.Event.ID] = true
	}
	c.b.mu.Unlock()
	if c.b.onPark != nil {
		return c.b.onPark(ctx, c.Cursor, entries)
	}
	return c.Cursor.Park(ctx, entries)
}

func (c *brokenTerm) Read(ctx context.Context, limit core.ReadLimit) (core.Batch, error) {
	batch, err := c.Cursor.Read(ctx, limit)
	if c.b.onEntry != nil {
		c.b.mu.Lock()
		defer c.b.mu.Unlock()
		for i := range batch.Entries {
			c.b.onEntry(&batch.Entries[i], c.b.known)
		}
	}
	return batch, err
}
