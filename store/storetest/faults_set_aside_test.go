package storetest_test

import (
	"context"
	"slices"
	"sync"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/store/storetest"
)

func failureFaults() []fault {
	return []fault{
		{name: "ParksInMemoryOnly", build: func(s *brokenStore) {
			s.onCursor = func(c *brokenCursor) {
				c.onPark = func(ctx context.Context, _ []core.Parked) error { return c.Cursor.Renew(ctx) }
			}
		}},
		{name: "ParksTheFirstOnly", build: func(s *brokenStore) {
			s.onCursor = func(c *brokenCursor) {
				c.onPark = func(ctx context.Context, entries []core.Parked) error { return c.Cursor.Park(ctx, entries[:1]) }
			}
		}},
		{name: "KeepsNoReason", build: func(s *brokenStore) {
			s.onCursor = func(c *brokenCursor) {
				c.onPark = func(ctx context.Context, entries []core.Parked) error {
					entries = slices.Clone(entries)
					for i := range entries {
						entries[i].Failure.Reason = ""
					}
					return c.Cursor.Park(ctx, entries)
				}
			}
		}},
		{name: "CountsNoFruitlessTerms", build: func(s *brokenStore) {
			s.onCursor = func(c *brokenCursor) {
				c.onTerm = func(t core.Term) core.Term { t.Fruitless = 0; return t }
			}
		}},
		{name: "CountsEveryTermAsFruitless", build: func(s *brokenStore) {
			var mu sync.Mutex
			terms := map[string]int{}
			s.onCursor = func(c *brokenCursor) {
				mu.Lock()
				defer mu.Unlock()
				n := terms[c.request.Name]
				terms[c.request.Name]++
				c.onTerm = func(t core.Term) core.Term { t.Fruitless = n; return t }
			}
		}},
		{name: "NotesNoSuspect", build: func(s *brokenStore) {
			s.onCursor = func(c *brokenCursor) {
				c.onSuspect = func(ctx context.Context, _ core.Mark) error { return c.Cursor.Renew(ctx) }
			}
		}},
	}
}

func cleanerFaults() []fault {
	return []fault{
		{name: "CleansWhatIsNeeded", build: func(s *brokenStore) {
			var mu sync.Mutex
			old := map[string]bool{}
			gone := map[string]bool{}
			s.onPut = func(d storetest.Document) {
				mu.Lock()
				defer mu.Unlock()
				old[d.Event.ID] = d.Age > 0
			}
			s.onClean = func(ctx context.Context, req core.CleanRequest) (core.CleanResult, error) {
				mu.Lock()
				defer mu.Unlock()
				result, err := s.faulty.Clean(ctx, req)
				for id, is := range old {
					gone[id] = is
				}
				return result, err
			}
			s.onCursor = func(c *brokenCursor) {
				c.onRead = func(ctx context.Context, limit core.ReadLimit) (core.Batch, error) {
					b, err := c.Cursor.Read(ctx, limit)
					mu.Lock()
					defer mu.Unlock()
					return keep(b, func(e core.Entry) bool { return !gone[e.Event.ID] }), err
				}
			}
		}},
		{name: "CleansWithoutRequiredCursors", build: func(s *brokenStore) {
			s.onClean = func(ctx context.Context, req core.CleanRequest) (core.CleanResult, error) {
				req.Cursors = nil
				return s.faulty.Clean(ctx, req)
			}
		}},
		{name: "CleansYoungEvents", build: func(s *brokenStore) {
			s.onClean = func(ctx context.Context, req core.CleanRequest) (core.CleanResult, error) {
				req.Retention = 1
				return s.faulty.Clean(ctx, req)
			}
		}},
		{name: "CleansNothing", build: func(s *brokenStore) {
			s.onClean = func(context.Context, core.CleanRequest) (core.CleanResult, error) {
				return core.CleanResult{}, nil
			}
		}},
		{name: "ReportsNoLag", build: func(s *brokenStore) {
			s.onLag = func(core.Lag) core.Lag { return core.Lag{} }
		}},
	}
}
