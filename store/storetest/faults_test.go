package storetest_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/gooutbox/outbox/core"
)

// faults are the stores that the suite must find.
func faults() []fault {
	return slices.Concat(transactionFaults(), readerFaults(), fenceFaults(), positionFaults(), failureFaults(), cleanerFaults())
}

func transactionFaults() []fault {
	return []fault{
		{name: "AppendsOutsideTransactions", build: func(s *brokenStore) {
			s.onAppend = func(ctx context.Context, events []core.Event) error {
				err := s.faulty.Append(ctx, events...)
				if errors.Is(err, core.ErrNoTransaction) {
					return s.faulty.InTransaction(context.WithoutCancel(ctx), func(ctx context.Context) error {
						return s.faulty.Append(ctx, events...)
					})
				}
				return err
			}
		}},
		{name: "CommitsBesideTheTransaction", build: func(s *brokenStore) {
			s.onAppend = func(_ context.Context, events []core.Event) error {
				return s.faulty.InTransaction(context.Background(), func(ctx context.Context) error {
					return s.faulty.Append(ctx, events...)
				})
			}
		}},
		{name: "CommitsWhatWasAborted", build: func(s *brokenStore) {
			s.onTransaction = func(ctx context.Context, fn func(ctx context.Context) error) error {
				var own error
				err := s.faulty.InTransaction(ctx, func(ctx context.Context) error {
					own = fn(ctx)
					return nil
				})
				if own != nil {
					return own
				}
				return err
			}
		}},
		{name: "RunsTheFunctionAgainAfterADuplicate", build: func(s *brokenStore) {
			s.onTransaction = func(ctx context.Context, fn func(ctx context.Context) error) error {
				for {
					err := s.faulty.InTransaction(ctx, fn)
					if _, dup := errors.AsType[*core.DuplicateIDError](err); !dup || ctx.Err() != nil || !strings.HasPrefix(err.Error(), "committing") {
						return err
					}
				}
			}
		}},
		{name: "AcceptsDuplicateIDs", build: func(s *brokenStore) {
			var mu sync.Mutex
			seen := map[string]bool{}
			s.onAppend = func(ctx context.Context, events []core.Event) error {
				mu.Lock()
				defer mu.Unlock()
				events = slices.Clone(events)
				for i := range events {
					for events[i].ID != "" && seen[events[i].ID] {
						events[i].ID += "+"
					}
					seen[events[i].ID] = true
				}
				return s.faulty.Append(ctx, events...)
			}
		}},
		{name: "DropsInvalidEvents", build: func(s *brokenStore) {
			s.onAppend = func(ctx context.Context, events []core.Event) error {
				events = slices.DeleteFunc(slices.Clone(events), func(e core.Event) bool { return e.Validate(0) != nil })
				return s.faulty.Append(ctx, events...)
			}
		}},
		{name: "StoresPayloadsAsText", build: func(s *brokenStore) {
			s.onAppend = func(ctx context.Context, events []core.Event) error {
				events = slices.Clone(events)
				for i := range events {
					events[i].Payload = []byte(strings.ToValidUTF8(string(events[i].Payload), "?"))
				}
				return s.faulty.Append(ctx, events...)
			}
		}},
	}
}

func readerFaults() []fault {
	// reading replaces what a Read returns.
	reading := func(change func(c *brokenCursor, b core.Batch) core.Batch) func(*brokenStore) {
		return func(s *brokenStore) {
			s.onCursor = func(c *brokenCursor) {
				c.onRead = func(ctx context.Context, limit core.ReadLimit) (core.Batch, error) {
					b, err := c.Cursor.Read(ctx, limit)
					return change(c, b), err
				}
			}
		}
	}
	return []fault{
		{name: "OrdersByID", build: reading(func(_ *brokenCursor, b core.Batch) core.Batch {
			slices.SortStableFunc(b.Entries, byID)
			return b
		})},
		{name: "MissesLateCommits", build: missLateCommits},
		{name: "DropsUndecodable", build: reading(func(_ *brokenCursor, b core.Batch) core.Batch {
			return keep(b, func(e core.Entry) bool { return e.Err == nil })
		})},
		{name: "ForgetsQueued", build: reading(func(_ *brokenCursor, b core.Batch) core.Batch {
			for i := range b.Entries {
				b.Entries[i].Queued = false
			}
			return b
		})},
		{name: "IgnoresLimits", build: func(s *brokenStore) {
			s.onCursor = func(c *brokenCursor) {
				c.onRead = func(ctx context.Context, _ core.ReadLimit) (core.Batch, error) {
					return c.Cursor.Read(ctx, core.ReadLimit{})
				}
			}
		}},
		{name: "SkipsABatchAfterAnError", build: func(s *brokenStore) {
			s.onCursor = func(c *brokenCursor) {
				c.onRead = func(ctx context.Context, limit core.ReadLimit) (core.Batch, error) {
					b, err := c.Cursor.Read(ctx, limit)
					if errors.Is(err, errLost) {
						_, _ = drain(ctx, c.Cursor)
					}
					return b, err
				}
			}
		}},
		{name: "WaitsForEverWhenReleased", build: func(s *brokenStore) {
			s.onCursor = func(c *brokenCursor) {
				c.onRead = func(ctx context.Context, limit core.ReadLimit) (core.Batch, error) {
					b, err := c.Cursor.Read(ctx, limit)
					if errors.Is(err, core.ErrFenced) {
						<-ctx.Done()
					}
					return b, err
				}
			}
		}},
		{name: "WaitsBeyondItsContext", build: func(s *brokenStore) {
			s.onCursor = func(c *brokenCursor) {
				c.onRead = func(ctx context.Context, limit core.ReadLimit) (core.Batch, error) {
					for {
						b, err := c.Cursor.Read(context.WithoutCancel(ctx), limit)
						if err != nil || len(b.Entries) > 0 || ctx.Err() == nil {
							return b, err
						}
					}
				}
			}
		}},
	}
}

// missLateCommits reads in the order of the appends, as one does that goes on
// after the highest number seen.
func missLateCommits(s *brokenStore) {
	var mu sync.Mutex
	number := map[string]int{}
	highest := map[string]int{}
	s.onAppend = func(ctx context.Context, events []core.Event) error {
		mu.Lock()
		defer mu.Unlock()
		for _, e := range events {
			if number[e.ID] == 0 {
				number[e.ID] = len(number) + 1
			}
		}
		return s.faulty.Append(ctx, events...)
	}
	s.onCursor = func(c *brokenCursor) {
		mu.Lock()
		defer mu.Unlock()
		highest[c.request.Name] = 0
		c.onRead = func(ctx context.Context, limit core.ReadLimit) (core.Batch, error) {
			b, err := c.Cursor.Read(ctx, limit)
			mu.Lock()
			defer mu.Unlock()
			return keep(b, func(e core.Entry) bool {
				n, last := number[e.Event.ID], highest[c.request.Name]
				highest[c.request.Name] = max(n, last)
				return n == 0 || n > last
			}), err
		}
	}
}

func fenceFaults() []fault {
	return []fault{
		{name: "SavesUnfenced", build: func(s *brokenStore) {
			s.onCursor = func(c *brokenCursor) {
				c.onSave = func(ctx context.Context, settled []core.Mark) error {
					return s.holder(c.request.Name).Cursor.Save(ctx, settled)
				}
			}
		}},
		{name: "RenewsUnfenced", build: func(s *brokenStore) {
			s.onCursor = func(c *brokenCursor) {
				c.onRenew = func(ctx context.Context) error { return s.holder(c.request.Name).Cursor.Renew(ctx) }
			}
		}},
		{name: "SuspectsUnfenced", build: func(s *brokenStore) {
			s.onCursor = func(c *brokenCursor) {
				c.onSuspect = func(ctx context.Context, m core.Mark) error {
					return s.holder(c.request.Name).Cursor.Suspect(ctx, m)
				}
			}
		}},
		{name: "ParksUnfenced", build: func(s *brokenStore) {
			s.onCursor = func(c *brokenCursor) {
				c.onPark = func(ctx context.Context, entries []core.Parked) error {
					return s.holder(c.request.Name).Cursor.Park(ctx, entries)
				}
			}
		}},
		{name: "TellsNotOfTheFence", build: func(s *brokenStore) {
			s.onCursor = func(c *brokenCursor) {
				c.onSave = func(ctx context.Context, settled []core.Mark) error {
					if err := c.Cursor.Save(ctx, settled); !errors.Is(err, core.ErrFenced) {
						return err
					}
					return nil // the filter matched nothing, and nobody looked
				}
			}
		}},
		{name: "RenewsNothing", build: func(s *brokenStore) {
			s.onCursor = func(c *brokenCursor) { c.onRenew = func(context.Context) error { return nil } }
		}},
		{name: "NeverRaisesTheFence", build: func(s *brokenStore) {
			s.onCursor = func(c *brokenCursor) {
				c.onTerm = func(t core.Term) core.Term { t.Fence = 1; return t }
			}
		}},
		{name: "LosesTheFenceWithTheLease", build: func(s *brokenStore) {
			var mu sync.Mutex
			fences := map[string]uint64{}
			s.onCursor = func(c *brokenCursor) {
				mu.Lock()
				defer mu.Unlock()
				fences[c.request.Name]++
				fence := fences[c.request.Name]
				c.onTerm = func(t core.Term) core.Term { t.Fence = fence; return t }
				c.onRelease = func(ctx context.Context) error {
					mu.Lock()
					defer mu.Unlock()
					delete(fences, c.request.Name)
					return c.Cursor.Release(ctx)
				}
			}
		}},
		{name: "GivesTheSameOwnerItsOldTerm", build: func(s *brokenStore) {
			s.onAcquire = func(ctx context.Context, req core.AcquireRequest) (core.Cursor, error) {
				if c := s.holder(req.Name); c != nil && c.request.Owner == req.Owner && c.Cursor.Renew(ctx) == nil {
					return c, nil
				}
				return s.acquire(ctx, req)
			}
		}},
		{name: "StealsRunningLeases", build: func(s *brokenStore) {
			s.onAcquire = func(ctx context.Context, req core.AcquireRequest) (core.Cursor, error) {
				c, err := s.acquire(ctx, req)
				if held, ok := errors.AsType[*core.HeldError](err); ok && req.Unchanged == "" {
					req.Unchanged = held.Revision
					return s.acquire(ctx, req)
				}
				return c, err
			}
		}},
		{name: "TakesOverWhateverChanged", build: func(s *brokenStore) {
			s.onAcquire = func(ctx context.Context, req core.AcquireRequest) (core.Cursor, error) {
				c, err := s.acquire(ctx, req)
				if held, ok := errors.AsType[*core.HeldError](err); ok && req.Unchanged != "" {
					req.Unchanged = held.Revision
					return s.acquire(ctx, req)
				}
				return c, err
			}
		}},
		{name: "HoldsForEver", build: func(s *brokenStore) {
			s.onAcquire = func(ctx context.Context, req core.AcquireRequest) (core.Cursor, error) {
				req.Lease *= 1000
				return s.acquire(ctx, req)
			}
		}},
		{name: "KeepsTheLeaseWhenReleased", build: func(s *brokenStore) {
			s.onCursor = func(c *brokenCursor) {
				c.onRelease = func(context.Context) error { return nil }
			}
		}},
		{name: "ReleasesAnothersLease", build: func(s *brokenStore) {
			s.onCursor = func(c *brokenCursor) {
				c.onRelease = func(ctx context.Context) error {
					return errors.Join(c.Cursor.Release(ctx), s.holder(c.request.Name).Cursor.Release(ctx))
				}
			}
		}},
	}
}

func positionFaults() []fault {
	return []fault{
		{name: "SavesWhatItRead", build: func(s *brokenStore) {
			s.onCursor = func(c *brokenCursor) {
				var mu sync.Mutex
				var last core.Mark
				c.onRead = func(ctx context.Context, limit core.ReadLimit) (core.Batch, error) {
					b, err := c.Cursor.Read(ctx, limit)
					mu.Lock()
					defer mu.Unlock()
					if n := len(b.Entries); n > 0 {
						last = b.Entries[n-1].Mark
					}
					return b, err
				}
				c.onSave = func(ctx context.Context, settled []core.Mark) error {
					mu.Lock()
					defer mu.Unlock()
					return c.Cursor.Save(ctx, append(slices.Clone(settled), last))
				}
			}
		}},
		{name: "SavesWholeTransactions", build: func(s *brokenStore) {
			s.onCursor = func(c *brokenCursor) {
				var mu sync.Mutex
				last := map[uint64]core.Mark{}
				c.onRead = func(ctx context.Context, limit core.ReadLimit) (core.Batch, error) {
					b, err := c.Cursor.Read(ctx, limit)
					mu.Lock()
					defer mu.Unlock()
					for _, e := range b.Entries {
						last[e.Mark.Position().Time] = e.Mark
					}
					return b, err
				}
				c.onSave = func(ctx context.Context, settled []core.Mark) error {
					mu.Lock()
					defer mu.Unlock()
					settled = slices.Clone(settled)
					if end := last[settled[len(settled)-1].Position().Time]; end != nil {
						settled = append(settled, end)
					}
					return c.Cursor.Save(ctx, settled)
				}
			}
		}},
		{name: "SavesTheFirst", build: func(s *brokenStore) {
			s.onCursor = func(c *brokenCursor) {
				c.onSave = func(ctx context.Context, settled []core.Mark) error {
					return c.Cursor.Save(ctx, settled[:1])
				}
			}
		}},
		{name: "SavesTheEndForThePlaceReached", build: func(s *brokenStore) {
			s.onCursor = func(c *brokenCursor) {
				var mu sync.Mutex
				var reached core.Mark
				c.onRead = func(ctx context.Context, limit core.ReadLimit) (core.Batch, error) {
					b, err := c.Cursor.Read(ctx, limit)
					mu.Lock()
					defer mu.Unlock()
					if b.Reached != nil {
						reached = b.Reached
					}
					return b, err
				}
				c.onSave = func(ctx context.Context, settled []core.Mark) error {
					mu.Lock()
					defer mu.Unlock()
					if len(settled) == 1 && settled[0] == reached {
						end, err := drain(ctx, c.Cursor)
						if err != nil {
							return err
						}
						settled = []core.Mark{end}
					}
					return c.Cursor.Save(ctx, settled)
				}
			}
		}},
		{name: "BeginsNowWithEachTerm", build: func(s *brokenStore) {
			var mu sync.Mutex
			saved := map[string]bool{}
			now := map[string]bool{}
			s.onCursor = func(c *brokenCursor) {
				mu.Lock()
				defer mu.Unlock()
				name := c.request.Name
				if now[name] && !saved[name] {
					_, _ = drain(context.Background(), c.Cursor)
				}
				now[name] = now[name] || c.request.Start.Now
				c.onSave = func(ctx context.Context, settled []core.Mark) error {
					mu.Lock()
					defer mu.Unlock()
					saved[name] = true
					return c.Cursor.Save(ctx, settled)
				}
			}
		}},
		{name: "BeginsAtTheBeginning", build: func(s *brokenStore) {
			s.onAcquire = func(ctx context.Context, req core.AcquireRequest) (core.Cursor, error) {
				req.Start = core.Start{IncludePublished: true}
				return s.acquire(ctx, req)
			}
		}},
		{name: "HasOnePlaceForAll", build: func(s *brokenStore) {
			s.onAcquire = func(ctx context.Context, req core.AcquireRequest) (core.Cursor, error) {
				if req.Name != "" {
					req.Name = "route"
				}
				return s.acquire(ctx, req)
			}
		}},
		{name: "RecoversFromNow", build: func(s *brokenStore) {
			var mu sync.Mutex
			lost := map[string]bool{}
			s.onLose = func(cursor string) {
				mu.Lock()
				defer mu.Unlock()
				lost[cursor] = true
			}
			s.onCursor = func(c *brokenCursor) {
				mu.Lock()
				defer mu.Unlock()
				if lost[c.request.Name] {
					_, _ = drain(context.Background(), c.Cursor)
					delete(lost, c.request.Name)
				}
			}
		}},
	}
}
