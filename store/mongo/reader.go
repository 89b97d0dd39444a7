package mongo

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/crash"
)

// reader reads the log for one term of a cursor. It is in one of three states:
// a scan runs, then a change stream; or the log is polled. Whatever fails, the
// next read goes on where the last one ended.
type reader struct {
	store *Store
	readerConfig

	// done ends when the reader is closed.
	done context.Context
	end  context.CancelFunc

	mu sync.Mutex // held while a read runs
	// pos is the place of the last entry that was read.
	pos core.Position
	// token is where the stream goes on, from if there is none.
	token bson.Raw
	from  bson.Timestamp
	mean  meanSize

	polling  *poll
	scanning *scan
	stream   *stream
	// pace spaces recoveries between which the stream gives nothing.
	pace pace
	// failures counts the streams that failed in a row without giving anything.
	failures int
	// patience is how long a call to the server may take.
	patience patience
}

func newReader(s *Store, cfg readerConfig) *reader {
	r := &reader{
		store: s, readerConfig: cfg, pos: cfg.doc.Position.position(), token: cfg.doc.Token,
		patience: patience{base: s.cfg.ReadWait + callPatience},
	}
	r.done, r.end = context.WithCancel(context.Background())
	switch {
	case cfg.poll:
		r.polling = newPoll(r)
	case cfg.doc.Scan != nil:
		r.scanning = newScan(r, *cfg.doc.Scan)
	case r.token == nil:
		// The cursor began with what is committed after its creation.
		r.from = after(cfg.doc.Position.Time)
	}
	return r
}

// after is the next timestamp.
func after(t bson.Timestamp) bson.Timestamp { return timestampOf(numberOf(t) + 1) }

// read returns the next entries, see core.Cursor.
func (r *reader) read(ctx context.Context, limit core.ReadLimit) (core.Batch, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.done, cancel)()

	b := &batch{limit: limit}
	err := r.fill(ctx, b)
	switch {
	case r.done.Err() != nil:
		return core.Batch{}, core.ErrFenced
	case err != nil && len(b.Entries) == 0:
		return core.Batch{}, fmt.Errorf("reading the log %s: %w", r.store.log.Name(), err)
	}
	return b.Batch, nil // an error shows again at the next read
}

// close stops a read that is under way and frees what the server holds for it.
func (r *reader) close(ctx context.Context) {
	r.end()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stream != nil {
		r.stream.close(ctx)
		r.stream = nil
	}
	if r.scanning != nil {
		r.scanning.reset(ctx)
	}
	if r.polling != nil {
		r.polling.reset(ctx)
	}
}

// fill reads until the batch is worth returning.
func (r *reader) fill(ctx context.Context, b *batch) error {
	reopened := false
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		switch {
		case r.polling != nil:
			return r.polling.fill(ctx, b)
		case r.scanning != nil:
			finished, err := r.scanning.fill(ctx, b)
			if err != nil || !finished || len(b.Entries) > 0 {
				return err
			}
			crash.Here("mongo.scan-to-stream")
			if err := r.follow(ctx, b); err != nil || b.Reached != nil {
				return err
			}
		case r.stream == nil:
			if err := r.openStream(ctx); err != nil {
				if err := r.lost(ctx, err); err != nil {
					return err
				}
			}
		default:
			err := r.stream.fill(ctx, b)
			if err == nil {
				return nil
			}
			if err := r.streamFailed(ctx, err); err != nil {
				return err
			}
			if len(b.Entries) > 0 || reopened {
				return err
			}
			// A getMore that failed is nobody's business if the stream can be
			// opened again at once.
			reopened = !errors.Is(err, errInvalidated)
		}
	}
}

// follow opens the stream that begins where the scan's snapshot ended.
func (r *reader) follow(ctx context.Context, b *batch) error {
	r.token, r.from = nil, after(r.scanning.snapshot)
	if err := r.openStream(ctx); err != nil {
		return r.lost(ctx, err)
	}
	if n := numberOf(r.scanning.snapshot); n > r.pos.Time {
		r.pos = core.Position{Time: n}
	}
	r.scanning.reset(ctx)
	r.scanning = nil
	b.Reached, b.SaveSoon = r.stream.reached(b), true
	return nil
}

// streamFailed drops a stream that gave an error. It returns an error only
// where reading can't go on for now.
func (r *reader) streamFailed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		// The call was stopped by the caller: what the stream says is its echo.
		r.dropStream()
		return ctx.Err()
	}
	r.failures++
	r.dropStream()
	switch {
	case errors.Is(err, errInvalidated):
		return nil
	case errors.Is(err, errReplaced):
		r.rescan(ctx)
		return nil
	case hasCode(err, codeHistoryLost, codeStreamFatal, codeTooLargeForReply):
		return r.recoverByScan(ctx, err)
	case r.failures > 1 && meaningOf(err) == meansLost:
		// It could be opened again, and failed the same way.
		return r.recoverByScan(ctx, err)
	}
	r.store.metrics.reopened.Add(ctx, 1, r.store.cursorAttributes(r.doc.Name))
	return nil
}

// dropStream forgets a stream that failed. Its server is not told where that
// may take long: it forgets the stream by itself.
func (r *reader) dropStream() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	r.stream.close(ctx)
	r.stream = nil
}

// advance is the place of an entry that was committed, or seen in a snapshot,
// at t: behind every entry before it.
func (r *reader) advance(t bson.Timestamp) core.Position {
	if n := numberOf(t); n > r.pos.Time {
		return core.Position{Time: n}
	}
	return core.Position{Time: r.pos.Time, Ordinal: r.pos.Ordinal + 1}
}
