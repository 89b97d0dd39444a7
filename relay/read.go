package relay

import (
	"context"
	"errors"
	"fmt"

	"github.com/gooutbox/outbox/core"
)

// budgetBatches is how many batches' bytes may wait in memory for their
// delivery.
const budgetBatches = 3

// read reads ahead until ctx ends or the term is over.
func (t *term) read(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(t.alive, cancel)()
	var pause waits
	for {
		limit, ok := t.roomToRead()
		if !ok {
			return
		}
		batch, err := t.cursor.Read(ctx, limit)
		switch {
		case err == nil:
			t.route.store.ok(opRead)
			pause = waits{}
			t.admit(batch)
		case ctx.Err() != nil:
			return
		case errors.Is(err, core.ErrFenced):
			t.end(err)
			return
		default:
			t.route.store.failed(opRead, err)
			if !pause.started() {
				pause = t.route.relay.cfg.StoreBackoff.start()
			}
			if !sleep(ctx, pause.next()) {
				return
			}
		}
	}
}

// roomToRead waits until there is room for more entries, and returns false when
// nothing more is to be read. It waits for room for a whole batch while there
// is work, so that reads stay large; when there is none it takes what there is.
func (t *term) roomToRead() (core.ReadLimit, bool) {
	cfg := t.route.cfg
	enough := min(cfg.BatchEvents, max(cfg.Window/2, 1))
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		if t.draining || t.over {
			return core.ReadLimit{}, false
		}
		if t.lines.crowded > 0 {
			t.crowdedOut()
			t.room.Wait()
			continue
		}
		free, bytes := t.win.free(), budgetBatches*cfg.BatchBytes-t.win.bytes
		idle := t.keys.ready.empty() && t.calls == 0
		if free >= enough && bytes >= cfg.BatchBytes/4 || idle && free > 0 && bytes > 0 {
			t.route.stall.ok(opWindow)
			return core.ReadLimit{Events: min(free, cfg.BatchEvents), Bytes: min(bytes, cfg.BatchBytes)}, true
		}
		if idle {
			t.stalled()
		}
		t.room.Wait()
	}
}

// stalled tells that nothing more can be read until a key that waits gets on.
// The lock is held.
func (t *term) stalled() {
	if len(t.keys.waiting) == 0 {
		return
	}
	k := t.keys.waiting[0]
	t.route.stall.failed(opWindow, k.wait.reason, "key", short(k.name), "event", short(t.win.at(k.head).entry.Event.ID),
		"events", t.win.count(), "bytes", t.win.bytes)
}

// crowdedOut tells that nothing more is read because too many events of a key are
// parked. The lock is held.
func (t *term) crowdedOut() {
	for l := range t.lines.all {
		if !l.crowded {
			continue
		}
		t.route.stall.failed(opWindow, fmt.Errorf("%d events of one key are parked, limit %d", l.open(), t.route.cfg.MaxParked),
			"key", short(l.key.name))
		return
	}
}

// admit takes entries into the window, in their order. What the route doesn't
// send is settled at once.
func (t *term) admit(batch core.Batch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return
	}
	for j := range batch.Entries {
		e := &batch.Entries[j]
		i := t.win.push(e)
		switch {
		case e.Queued:
			t.win.settle(i)
		case e.Err != nil && e.Event.AggregateID == "":
			t.park(park{place: i, state: core.JobFailed, failure: core.Failure{Code: core.CodeUndecodable, Reason: e.Err.Error()}})
		case e.Err == nil && !t.route.cfg.Match.Matches(&e.Event):
			t.win.settle(i)
		default:
			if k := t.keys.add(&t.win, e.Event.AggregateID, i); k.line != nil {
				t.follow(k)
			}
		}
	}
	if len(batch.Entries) > 0 || batch.Reached != nil {
		t.saver.reached, t.saver.soon = batch.Reached, batch.SaveSoon && batch.Reached != nil
	}
	t.advance()
	if !t.keys.ready.empty() {
		t.work.Signal()
	}
}
