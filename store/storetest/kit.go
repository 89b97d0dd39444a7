package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gooutbox/outbox/core"
)

// kit is what one subtest works with.
type kit struct {
	*testing.T
	h   Harness
	ctx context.Context
	// store and other are two handles on the same data.
	store, other Store
	ends         int
}

const (
	// cursorName is the cursor of rules that need one.
	cursorName = "route"
	// long is a lease that doesn't run out during a test.
	long = 10 * time.Minute
)

// event returns a small valid event.
func event(id string) core.Event {
	return core.Event{ID: id, AggregateID: "key", Type: "thing.happened", Payload: []byte(`{"id":"` + id + `"}`)}
}

// append commits each event in a transaction of its own.
func (k *kit) append(ids ...string) {
	k.Helper()
	for _, id := range ids {
		k.commit(event(id))
	}
}

// appendApart is append of events that have keys of their own.
func (k *kit) appendApart(ids ...string) {
	k.Helper()
	for _, id := range ids {
		k.commit(keyedEvent(id, "key-of-"+id))
	}
}

// keyedEvent is event with another key.
func keyedEvent(id, key string) core.Event {
	e := event(id)
	e.AggregateID = key
	return e
}

// commit appends the events in one transaction.
func (k *kit) commit(events ...core.Event) {
	k.Helper()
	err := k.store.InTransaction(k.ctx, func(ctx context.Context) error {
		return k.store.Append(ctx, events...)
	})
	if err != nil {
		k.Fatalf("appending %d events: %v", len(events), err)
	}
}

// put adds documents beside Append.
func (k *kit) put(docs ...Document) {
	k.Helper()
	if err := k.h.Put(k.ctx, k.store, docs...); err != nil {
		k.Fatalf("putting documents: %v", err)
	}
}

// cursor acquires the first term of the rule's cursor, which begins now.
func (k *kit) cursor() core.Cursor {
	k.Helper()
	return k.acquire(k.store, core.AcquireRequest{Owner: "first", Start: core.Start{Now: true}})
}

// acquire fails the test when the cursor can't be had. Name and Lease are
// filled in where they are missing.
func (k *kit) acquire(s Store, req core.AcquireRequest) core.Cursor {
	k.Helper()
	c, err := k.tryAcquire(s, req)
	if err != nil {
		k.Fatalf("acquiring for %s: %v", req.Owner, err)
	}
	return c
}

func (k *kit) tryAcquire(s Store, req core.AcquireRequest) (core.Cursor, error) {
	if req.Name == "" {
		req.Name = cursorName
	}
	if req.Lease == 0 {
		req.Lease = long
	}
	c, err := s.Acquire(k.ctx, req)
	if err == nil {
		k.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), k.h.Timeout)
			defer cancel()
			_ = c.Release(ctx) // frees what a term holds; its rules are tested elsewhere
		})
	}
	return c, err
}

// takeOver acquires the rule's cursor for another owner while its lease runs,
// as a standby does that saw it unchanged for a whole lease.
func (k *kit) takeOver(owner string) core.Cursor {
	k.Helper()
	return k.takeOverNamed(cursorName, owner)
}

func (k *kit) takeOverNamed(name, owner string) core.Cursor {
	k.Helper()
	req := core.AcquireRequest{Name: name, Owner: owner}
	c, err := k.tryAcquire(k.other, req)
	if held, ok := errors.AsType[*core.HeldError](err); ok {
		req.Unchanged = held.Revision
		c, err = k.tryAcquire(k.other, req)
	}
	if err != nil {
		k.Fatalf("taking over for %s: %v", owner, err)
	}
	return c
}

// held returns why the cursor can't be acquired by somebody else.
func (k *kit) held() *core.HeldError {
	k.Helper()
	_, err := k.tryAcquire(k.other, core.AcquireRequest{Owner: "probe"})
	held, ok := errors.AsType[*core.HeldError](err)
	if !ok {
		k.Fatalf("acquiring a held cursor: %v, want a *core.HeldError", err)
	}
	return held
}

// read returns the next n entries.
func (k *kit) read(c core.Cursor, n int) []core.Entry {
	k.Helper()
	var got []core.Entry
	for len(got) < n {
		b, err := c.Read(k.ctx, core.ReadLimit{})
		if err != nil {
			k.Fatalf("reading after %v: %v", idsOf(got), err)
		}
		got = append(got, b.Entries...)
	}
	if len(got) > n {
		k.Fatalf("read %d entries, want %d: %v", len(got), n, idsOf(got))
	}
	return got
}

// readUntil reads up to the event with this id, which it leaves out. When
// patient, errors of Read are taken for passing ones.
func (k *kit) readUntil(c core.Cursor, id string, patient bool) []core.Entry {
	k.Helper()
	var got []core.Entry
	for {
		b, err := c.Read(k.ctx, core.ReadLimit{})
		if err != nil && (!patient || k.ctx.Err() != nil || errors.Is(err, core.ErrFenced)) {
			k.Fatalf("reading after %v: %v", idsOf(got), err)
		}
		for i, e := range b.Entries {
			if e.Event.ID == id {
				if rest := b.Entries[i+1:]; len(rest) > 0 {
					k.Fatalf("read %v after the last event", idsOf(rest))
				}
				return got
			}
			got = append(got, e)
		}
	}
}

// expect fails unless exactly these events come next, and nothing after them.
func (k *kit) expect(c core.Cursor, ids ...string) []core.Entry {
	k.Helper()
	got := k.readUntil(c, k.end(), false)
	k.wantIDs(got, ids...)
	return got
}

// expectStored is expect for documents that were put before the cursor began:
// a scan may read those that have no place in the order of commits apart from
// the others.
func (k *kit) expectStored(c core.Cursor, ids ...string) {
	k.Helper()
	k.wantSameIDs(idsOf(k.read(c, len(ids))), ids)
	k.expect(c)
}

// readAll reads until each of the ids was read.
func (k *kit) readAll(c core.Cursor, ids []string) {
	k.Helper()
	for missing := ids; len(missing) > 0; {
		b, err := c.Read(k.ctx, core.ReadLimit{})
		if err != nil {
			k.Fatalf("reading, %v is missing: %v", missing, err)
		}
		missing = difference(missing, idsOf(b.Entries))
	}
}

// wantSameIDs compares without regard to order.
func (k *kit) wantSameIDs(got, want []string) {
	k.Helper()
	got, want = slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))
	if !slices.Equal(got, want) {
		k.Fatalf("read %v, want %v", got, want)
	}
}

// end appends a last event and returns its id.
func (k *kit) end() string {
	k.Helper()
	k.ends++
	id := fmt.Sprintf("end-%d", k.ends)
	k.append(id)
	return id
}

// census returns the ids of all events in the log, by a cursor of its own.
func (k *kit) census() []string {
	k.Helper()
	end := k.end()
	c := k.acquire(k.store, core.AcquireRequest{
		Name: "census-" + end, Owner: "census", Start: core.Start{IncludePublished: true},
	})
	return idsOf(k.readUntil(c, end, false))
}

// catchUp does what a relay does whose sink takes everything: it reads and
// settles until there is nothing more, and saves the place reached.
func (k *kit) catchUp(c core.Cursor) []core.Entry {
	k.Helper()
	var got []core.Entry
	for {
		b, err := c.Read(k.ctx, core.ReadLimit{})
		if err != nil {
			k.Fatalf("reading after %v: %v", idsOf(got), err)
		}
		got = append(got, b.Entries...)
		k.save(c, b.Entries...)
		if b.Reached != nil {
			if err := c.Save(k.ctx, []core.Mark{b.Reached}); err != nil {
				k.Fatalf("saving the place reached: %v", err)
			}
		}
		if b.SaveSoon || len(b.Entries) == 0 {
			return got
		}
	}
}

// save settles entries.
func (k *kit) save(c core.Cursor, entries ...core.Entry) {
	k.Helper()
	if len(entries) == 0 {
		return
	}
	if err := c.Save(k.ctx, marksOf(entries)); err != nil {
		k.Fatalf("saving %v: %v", idsOf(entries), err)
	}
}

// park parks one entry as rejected.
func (k *kit) park(c core.Cursor, e core.Entry) {
	k.Helper()
	if err := c.Park(k.ctx, []core.Parked{parked(e)}); err != nil {
		k.Fatalf("parking %s: %v", e.Event.ID, err)
	}
}

func parked(e core.Entry) core.Parked {
	return core.Parked{
		Entry: e, Sink: "sink", Attempts: 1,
		Failure: core.Failure{Code: core.CodeRejected, Reason: "refused by the test"},
	}
}

// failed returns what the rule's cursor parked, by id.
func (k *kit) failed() map[string]Failed {
	k.Helper()
	return k.failedOf(cursorName)
}

func (k *kit) failedOf(cursor string) map[string]Failed {
	k.Helper()
	all, err := k.h.Failed(k.ctx, k.other, cursor)
	if err != nil {
		k.Fatalf("reading failed events: %v", err)
	}
	byID := make(map[string]Failed, len(all))
	for _, f := range all {
		if _, twice := byID[f.Event.ID]; twice {
			k.Fatalf("%s is kept twice as failed", f.Event.ID)
		}
		byID[f.Event.ID] = f
	}
	return byID
}

func (k *kit) wantIDs(entries []core.Entry, want ...string) {
	k.Helper()
	if got := idsOf(entries); !slices.Equal(got, want) {
		k.Fatalf("read %v, want %v", got, want)
	}
}

// wantFenced fails unless err tells that the lease was lost.
func (k *kit) wantFenced(what string, err error) {
	k.Helper()
	if !errors.Is(err, core.ErrFenced) {
		k.Errorf("%s: %v, want core.ErrFenced", what, err)
	}
}

func idsOf(entries []core.Entry) []string {
	ids := make([]string, 0, len(entries))
	for _, e := range entries {
		ids = append(ids, e.Event.ID)
	}
	return ids
}

func marksOf(entries []core.Entry) []core.Mark {
	marks := make([]core.Mark, 0, len(entries))
	for _, e := range entries {
		marks = append(marks, e.Mark)
	}
	return marks
}

// onlyNew drops all but the first occurrence of each id.
func onlyNew(entries []core.Entry) []core.Entry {
	seen := map[string]bool{}
	var kept []core.Entry
	for _, e := range entries {
		if !seen[e.Event.ID] {
			seen[e.Event.ID] = true
			kept = append(kept, e)
		}
	}
	return kept
}
