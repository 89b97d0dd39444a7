package storetest_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/store/storetest"
)

// brokenVariable tells a child process to run the suite on the broken stores.
const brokenVariable = "OUTBOX_STORETEST_BROKEN"

// TestSuiteFindsBrokenStores runs the suite on stores that break one rule each,
// in a process of their own, and wants exactly the subtests that are named for
// the fault to fail.
func TestSuiteFindsBrokenStores(t *testing.T) {
	all := map[string]fault{}
	for _, f := range faults() {
		all[f.name] = f
	}
	// Most of what fails waits in vain until its time is up.
	runBroken(t, slices.Sorted(maps.Keys(all)), 64, func(t *testing.T, fault string) {
		storetest.Run(t, brokenHarness(all[fault]))
	}, findings)
}

// runBroken runs a suite on broken stores in a process of its own, in which it
// calls the test again, and compares which subtests fail with those that must
// and may.
func runBroken(t *testing.T, faults []string, parallel int, suite func(t *testing.T, fault string), findings func(fault string) (must, may []string)) {
	if os.Getenv(brokenVariable) != "" {
		for _, fault := range faults {
			t.Run(fault, func(t *testing.T) {
				t.Parallel()
				suite(t, fault)
			})
		}
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.parallel="+strconv.Itoa(parallel))
	cmd.Env = append(os.Environ(), brokenVariable+"=all")
	output, err := cmd.CombinedOutput()
	if _, failed := errors.AsType[*exec.ExitError](err); !failed {
		t.Fatalf("the suite passes on broken stores: %v", err)
	}
	failed := map[string][]string{}
	failedRule := regexp.MustCompile(`(?m)^ *--- FAIL: ` + t.Name() + `/(\w+)/(\w+/\w+) `)
	for _, m := range failedRule.FindAllStringSubmatch(string(output), -1) {
		failed[m[1]] = append(failed[m[1]], m[2])
	}
	for _, fault := range faults {
		t.Run(fault, func(t *testing.T) {
			must, may := findings(fault)
			compareFindings(t, failed[fault], must, may)
		})
	}
	if t.Failed() {
		t.Logf("the suite said:\n%s", output)
	}
}

func compareFindings(t *testing.T, failed, must, may []string) {
	if len(must) == 0 {
		t.Error("no rule is named that finds this fault")
	}
	for _, want := range must {
		if !slices.Contains(failed, want) {
			t.Errorf("%s passes", want)
		}
	}
	for _, got := range failed {
		if !slices.Contains(must, got) && !slices.Contains(may, got) {
			t.Errorf("%s fails", got)
		}
	}
	if t.Failed() {
		t.Logf("failed: %q", failed)
	}
}

// fault is one way in which a store is wrong.
type fault struct {
	name string
	// build makes the store wrong.
	build func(*brokenStore)
}

// brokenStore is a memory store some of whose methods are replaced.
type brokenStore struct {
	*faulty
	onTransaction func(ctx context.Context, fn func(ctx context.Context) error) error
	onAppend      func(ctx context.Context, events []core.Event) error
	onAcquire     func(ctx context.Context, req core.AcquireRequest) (core.Cursor, error)
	onClean       func(ctx context.Context, req core.CleanRequest) (core.CleanResult, error)
	onLag         func(core.Lag) core.Lag
	// onCursor changes a new term.
	onCursor func(*brokenCursor)
	// onPut and onLose are told what the harness does.
	onPut  func(storetest.Document)
	onLose func(cursor string)

	mu     sync.Mutex
	newest map[string]*brokenCursor
}

func (s *brokenStore) InTransaction(ctx context.Context, fn func(ctx context.Context) error) error {
	if s.onTransaction != nil {
		return s.onTransaction(ctx, fn)
	}
	return s.faulty.InTransaction(ctx, fn)
}

func (s *brokenStore) Append(ctx context.Context, events ...core.Event) error {
	if s.onAppend != nil {
		return s.onAppend(ctx, events)
	}
	return s.faulty.Append(ctx, events...)
}

func (s *brokenStore) Acquire(ctx context.Context, req core.AcquireRequest) (core.Cursor, error) {
	if s.onAcquire != nil {
		return s.onAcquire(ctx, req)
	}
	return s.acquire(ctx, req)
}

// acquire wraps the term of the memory store.
func (s *brokenStore) acquire(ctx context.Context, req core.AcquireRequest) (core.Cursor, error) {
	inner, err := s.faulty.Acquire(ctx, req)
	if err != nil {
		return nil, err
	}
	c := &brokenCursor{Cursor: inner, store: s, request: req}
	s.mu.Lock()
	s.newest[req.Name] = c
	s.mu.Unlock()
	if s.onCursor != nil {
		s.onCursor(c)
	}
	return c, nil
}

func (s *brokenStore) Clean(ctx context.Context, req core.CleanRequest) (core.CleanResult, error) {
	if s.onClean != nil {
		return s.onClean(ctx, req)
	}
	return s.faulty.Clean(ctx, req)
}

func (s *brokenStore) Lag(ctx context.Context, cursor string) (core.Lag, error) {
	lag, err := s.faulty.Lag(ctx, cursor)
	if s.onLag != nil {
		lag = s.onLag(lag)
	}
	return lag, err
}

// holder is the newest term of a cursor, whoever asks.
func (s *brokenStore) holder(cursor string) *brokenCursor {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.newest[cursor]
}

// brokenCursor is a term some of whose methods are replaced.
type brokenCursor struct {
	core.Cursor
	store   *brokenStore
	request core.AcquireRequest

	onTerm    func(core.Term) core.Term
	onRead    func(ctx context.Context, limit core.ReadLimit) (core.Batch, error)
	onSave    func(ctx context.Context, settled []core.Mark) error
	onRenew   func(ctx context.Context) error
	onSuspect func(ctx context.Context, m core.Mark) error
	onPark    func(ctx context.Context, entries []core.Parked) error
	onRelease func(ctx context.Context) error
}

func (c *brokenCursor) Term() core.Term {
	if c.onTerm != nil {
		return c.onTerm(c.Cursor.Term())
	}
	return c.Cursor.Term()
}

func (c *brokenCursor) Read(ctx context.Context, limit core.ReadLimit) (core.Batch, error) {
	if c.onRead != nil {
		return c.onRead(ctx, limit)
	}
	return c.Cursor.Read(ctx, limit)
}

func (c *brokenCursor) Save(ctx context.Context, settled []core.Mark) error {
	if c.onSave != nil {
		return c.onSave(ctx, settled)
	}
	return c.Cursor.Save(ctx, settled)
}

func (c *brokenCursor) Renew(ctx context.Context) error {
	if c.onRenew != nil {
		return c.onRenew(ctx)
	}
	return c.Cursor.Renew(ctx)
}

func (c *brokenCursor) Suspect(ctx context.Context, m core.Mark) error {
	if c.onSuspect != nil {
		return c.onSuspect(ctx, m)
	}
	return c.Cursor.Suspect(ctx, m)
}

func (c *brokenCursor) Park(ctx context.Context, entries []core.Parked) error {
	if c.onPark != nil {
		return c.onPark(ctx, entries)
	}
	return c.Cursor.Park(ctx, entries)
}

func (c *brokenCursor) Release(ctx context.Context) error {
	if c.onRelease != nil {
		return c.onRelease(ctx)
	}
	return c.Cursor.Release(ctx)
}

func brokenHarness(f fault) storetest.Harness {
	h := harnessOf(func(*testing.T) storetest.Store {
		s := &brokenStore{faulty: newFaulty(), newest: map[string]*brokenCursor{}}
		f.build(s)
		return s
	}, func(s storetest.Store) *faulty { return s.(*brokenStore).faulty })
	put := h.Put
	h.Put = func(ctx context.Context, s storetest.Store, docs ...storetest.Document) error {
		for _, d := range docs {
			if told := s.(*brokenStore).onPut; told != nil {
				told(d)
			}
		}
		return put(ctx, s, docs...)
	}
	h.LoseToken = func(_ context.Context, s storetest.Store, cursor string) error {
		if told := s.(*brokenStore).onLose; told != nil {
			told(cursor)
		}
		return nil
	}
	h.Timeout = 5 * time.Second
	h.Seed = 1
	return h
}

// drain reads and drops what is committed by now.
func drain(ctx context.Context, c core.Cursor) (core.Mark, error) {
	for {
		b, err := c.Read(ctx, core.ReadLimit{})
		if err != nil || len(b.Entries) == 0 {
			return b.Reached, err
		}
	}
}

// keep returns the entries that are wanted.
func keep(b core.Batch, wanted func(core.Entry) bool) core.Batch {
	b.Entries = slices.DeleteFunc(slices.Clone(b.Entries), func(e core.Entry) bool { return !wanted(e) })
	return b
}

// byID sorts entries by their ids, as a reader would that trusts them.
func byID(a, b core.Entry) int { return strings.Compare(a.Event.ID, b.Event.ID) }
