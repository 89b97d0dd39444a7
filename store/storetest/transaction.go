package storetest

import (
	"context"
	"errors"
	"fmt"
	"regexp"

	"github.com/gooutbox/outbox/core"
)

// errAbort is why a test's transaction doesn't commit.
var errAbort = errors.New("the test aborts the transaction")

func transactionRules() []rule {
	return []rule{
		{name: "CommittedEventIsRead", check: func(k *kit) {
			c := k.cursor()
			k.append("a")
			k.expect(c, "a")
		}},
		{name: "EventsOfOneTransactionKeepTheirOrder", check: func(k *kit) {
			c := k.cursor()
			k.commit(event("c"), event("a"), event("b"))
			k.expect(c, "c", "a", "b")
		}},
		{name: "SeveralAppendsOfOneTransactionKeepTheirOrder", check: func(k *kit) {
			c := k.cursor()
			err := k.store.InTransaction(k.ctx, func(ctx context.Context) error {
				return errors.Join(k.store.Append(ctx, event("c"), event("a")), k.store.Append(ctx, event("b")))
			})
			if err != nil {
				k.Fatal(err)
			}
			k.expect(c, "c", "a", "b")
		}},
		{name: "AbortLeavesNothing", needs: []need{transactions}, check: func(k *kit) {
			c := k.cursor()
			err := k.store.InTransaction(k.ctx, func(ctx context.Context) error {
				if err := k.store.Append(ctx, event("phantom")); err != nil {
					k.Errorf("appending: %v", err)
				}
				return errAbort
			})
			if !errors.Is(err, errAbort) {
				k.Errorf("InTransaction: %v, want the function's own error", err)
			}
			k.expect(c)
		}},
		{name: "PanicLeavesNothing", needs: []need{transactions}, check: func(k *kit) {
			c := k.cursor()
			func() {
				defer func() {
					if got := recover(); got != "on purpose" {
						k.Errorf("recovered %v, want the function's own panic", got)
					}
				}()
				_ = k.store.InTransaction(k.ctx, func(ctx context.Context) error {
					if err := k.store.Append(ctx, event("phantom")); err != nil {
						k.Errorf("appending: %v", err)
					}
					panic("on purpose")
				})
			}()
			k.expect(c)
		}},
		{name: "CancelIsACommitOrAnError", needs: []need{transactions}, check: checkCancel},
		{name: "OpenTransactionIsNotRead", needs: []need{transactions, writers}, check: checkOpenTransaction},
		{name: "AppendOutsideIsRefused", needs: []need{transactions}, check: func(k *kit) {
			c := k.cursor()
			if err := k.store.Append(k.ctx, event("stray")); !errors.Is(err, core.ErrNoTransaction) {
				k.Errorf("Append outside a transaction: %v, want core.ErrNoTransaction", err)
			}
			k.expect(c)
		}},
		{name: "AppendAfterItsEndIsRefused", needs: []need{transactions}, check: func(k *kit) {
			c := k.cursor()
			var kept context.Context
			err := k.store.InTransaction(k.ctx, func(ctx context.Context) error {
				kept = ctx //nolint:fatcontext // kept on purpose, to be misused
				return k.store.Append(ctx, event("a"))
			})
			if err != nil {
				k.Fatal(err)
			}
			if err := k.store.Append(kept, event("stray")); !errors.Is(err, core.ErrNoTransaction) {
				k.Errorf("Append after the transaction: %v, want core.ErrNoTransaction", err)
			}
			k.expect(c, "a")
		}},
		{name: "AppendOfNothingIsNoError", check: func(k *kit) {
			err := k.store.InTransaction(k.ctx, func(ctx context.Context) error { return k.store.Append(ctx) })
			if err != nil {
				k.Error(err)
			}
		}},
		{name: "DuplicateIDIsRefused", check: func(k *kit) {
			c := k.cursor()
			k.append("a")
			err := k.store.InTransaction(k.ctx, func(ctx context.Context) error {
				return k.store.Append(ctx, event("a"))
			})
			k.wantDuplicate(err, "a")
			k.expect(c, "a")
		}},
		{name: "DuplicateIDInOneCallIsRefused", needs: []need{transactions}, check: func(k *kit) {
			c := k.cursor()
			err := k.store.InTransaction(k.ctx, func(ctx context.Context) error {
				return k.store.Append(ctx, event("a"), event("b"), event("a"))
			})
			if errors.Is(err, core.ErrInvalidEvent) {
				wantField(k, err, "ID", 0)
			} else {
				k.wantDuplicate(err, "a")
			}
			k.expect(c)
		}},
		// A function that swallows the error must neither commit half of its
		// work nor be run again and again.
		{name: "SwallowedDuplicateIDCommitsNothing", needs: []need{transactions}, check: func(k *kit) {
			c := k.cursor()
			k.append("a")
			runs := 0
			err := k.store.InTransaction(k.ctx, func(ctx context.Context) error {
				runs++
				_ = k.store.Append(ctx, event("a"))
				_ = k.store.Append(ctx, event("b"))
				return nil
			})
			k.wantDuplicate(err, "a")
			if runs > 3 {
				k.Errorf("the function ran %d times", runs)
			}
			k.expect(c, "a")
		}},
		{name: "IDsAreAssigned", check: checkAssignedIDs},
	}
}

func (k *kit) wantDuplicate(err error, id string) {
	k.Helper()
	dup, ok := errors.AsType[*core.DuplicateIDError](err)
	if !ok {
		k.Fatalf("appending a duplicate id: %v, want a *core.DuplicateIDError", err)
	}
	if dup.ID != id && dup.ID != "" {
		k.Errorf("duplicate id %q, want %q", dup.ID, id)
	}
}

// checkCancel: a context that ends inside the function leads to an error and
// nothing, or to no error and the event.
func checkCancel(k *kit) {
	c := k.cursor()
	ctx, cancel := context.WithCancel(k.ctx)
	defer cancel()
	err := k.store.InTransaction(ctx, func(ctx context.Context) error {
		if err := k.store.Append(ctx, event("a")); err != nil {
			return err
		}
		cancel()
		return nil
	})
	if err == nil {
		k.expect(c, "a")
	} else {
		k.expect(c)
	}
}

// checkOpenTransaction: what another transaction appended and didn't commit is
// not seen, also not when later events are.
func checkOpenTransaction(k *kit) {
	c := k.cursor()
	open := k.openTransaction(event("open"))
	k.append("a")
	k.expect(c, "a")
	if err := open.commit(); err != nil {
		k.Fatal(err)
	}
	k.expect(c, "open")
}

// openTransaction is a transaction that appended and waits.
type openTransaction struct {
	goOn chan error
	done chan error
}

// openTransaction starts a transaction that appends the event and then waits
// for commit or abort.
func (k *kit) openTransaction(e core.Event) *openTransaction {
	k.Helper()
	o := &openTransaction{goOn: make(chan error, 1), done: make(chan error, 1)}
	appended := make(chan struct{}, 1)
	go func() {
		o.done <- k.store.InTransaction(k.ctx, func(ctx context.Context) error {
			if err := k.store.Append(ctx, e); err != nil {
				return err
			}
			select {
			case appended <- struct{}{}:
			default:
			}
			select {
			case err := <-o.goOn:
				o.goOn <- err // for another run after a conflict
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	select {
	case <-appended:
	case err := <-o.done:
		k.Fatalf("opening a transaction: %v", err)
	}
	return o
}

func (o *openTransaction) commit() error {
	o.goOn <- nil
	return <-o.done
}

var uuidV7 = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

func checkAssignedIDs(k *kit) {
	c := k.cursor()
	const n = 20
	events := make([]core.Event, n)
	for i := range events {
		events[i] = event("")
		events[i].AggregateID = fmt.Sprintf("key-%d", i)
	}
	k.commit(events...)
	seen := map[string]bool{}
	for i, e := range k.read(c, n) {
		if !uuidV7.MatchString(e.Event.ID) || seen[e.Event.ID] {
			k.Errorf("event %d has the id %q, want a UUIDv7 of its own", i, e.Event.ID)
		}
		seen[e.Event.ID] = true
		if events[i].ID != "" {
			k.Errorf("Append wrote into the caller's event")
		}
	}
}
