package storetest

import (
	"bytes"
	"context"
	"errors"
	"strings"

	"github.com/gooutbox/outbox/core"
)

func validationRules() []rule {
	refused := func(name, field string, limit int, spoil func(*core.Event)) rule {
		return rule{name: name, check: func(k *kit) {
			c := k.cursor()
			bad := event("bad")
			spoil(&bad)
			var refusal error
			err := k.store.InTransaction(k.ctx, func(ctx context.Context) error {
				refusal = k.store.Append(ctx, event("before"), bad)
				return refusal
			})
			if err == nil || !errors.Is(err, core.ErrInvalidEvent) || !errors.Is(refusal, core.ErrInvalidEvent) {
				k.Fatalf("Append: %v, InTransaction: %v, want core.ErrInvalidEvent", refusal, err)
			}
			wantField(k, refusal, field, limit)
			k.expect(c)
		}}
	}
	return []rule{
		refused("EmptyTypeIsRefused", "Type", 0, func(e *core.Event) { e.Type = "" }),
		refused("EmptyKeyIsRefused", "AggregateID", 0, func(e *core.Event) { e.AggregateID = "" }),
		refused("LongKeyIsRefused", "AggregateID", core.MaxKeyBytes, func(e *core.Event) {
			e.AggregateID = strings.Repeat("k", core.MaxKeyBytes+1)
		}),
		refused("LongIDIsRefused", "ID", core.MaxNameBytes, func(e *core.Event) {
			e.ID = strings.Repeat("i", core.MaxNameBytes+1)
		}),
		refused("InvalidTextIsRefused", "Tenant", 0, func(e *core.Event) { e.Tenant = "\xff" }),
		refused("HeaderNameIsRefused", `Headers["a b"]`, 0, func(e *core.Event) {
			e.Headers = map[string]string{"a b": "value"}
		}),
		refused("HeaderLineBreakIsRefused", `Headers["x-a"]`, 0, func(e *core.Event) {
			e.Headers = map[string]string{"x-a": "value\r\nx-b: other"}
		}),
		refused("ReservedHeaderIsRefused", `Headers["ce_id"]`, 0, func(e *core.Event) {
			e.Headers = map[string]string{"ce_id": "other"}
		}),
		{name: "TooLargeEventIsRefused", check: func(k *kit) {
			c := k.cursor()
			bad := sized(k.h.MaxEventBytes + 1)
			err := k.store.InTransaction(k.ctx, func(ctx context.Context) error {
				return k.store.Append(ctx, bad)
			})
			wantField(k, err, "Event", k.h.MaxEventBytes)
			k.expect(c)
		}},
		{name: "LargestEventIsStored", check: func(k *kit) {
			c := k.cursor()
			e := sized(k.h.MaxEventBytes)
			k.commit(e)
			got := k.read(c, 1)[0]
			if !bytes.Equal(got.Event.Payload, e.Payload) {
				k.Errorf("%d bytes of payload came back as %d others", len(e.Payload), len(got.Event.Payload))
			}
			if got.Size < len(e.Payload) {
				k.Errorf("Entry.Size is %d for a payload of %d bytes", got.Size, len(e.Payload))
			}
		}},
		{name: "AllProblemsAreNamedAtOnce", check: func(k *kit) {
			err := k.store.InTransaction(k.ctx, func(ctx context.Context) error {
				return k.store.Append(ctx, core.Event{})
			})
			wantField(k, err, "Type", 0)
			wantField(k, err, "AggregateID", 0)
		}},
		{name: "RefusedEventLeavesTheTransactionUsable", needs: []need{transactions}, check: func(k *kit) {
			c := k.cursor()
			err := k.store.InTransaction(k.ctx, func(ctx context.Context) error {
				if err := k.store.Append(ctx, event("with-it"), core.Event{}); err == nil {
					k.Error("an empty event was taken")
				}
				return k.store.Append(ctx, event("a"))
			})
			if err != nil {
				k.Fatal(err)
			}
			k.expect(c, "a")
		}},
	}
}

// sized returns an event whose Size is n.
func sized(n int) core.Event {
	e := event("large")
	e.Payload = nil
	e.Payload = []byte(strings.Repeat("x", n-e.Size()))
	return e
}

// wantField fails unless the tree of err holds a FieldError for the field.
func wantField(k *kit, err error, field string, limit int) {
	k.Helper()
	for _, f := range fieldErrors(err) {
		if f.Field != field {
			continue
		}
		if f.Limit != limit || limit > 0 && f.Size <= limit {
			k.Errorf("%v: limit %d and size %d, want the limit %d and a larger size", f, f.Limit, f.Size, limit)
		}
		return
	}
	k.Errorf("%v: want a *core.FieldError for %s", err, field)
}

// fieldErrors returns all FieldErrors in the tree of err.
func fieldErrors(err error) []*core.FieldError {
	switch e := err.(type) { //nolint:errorlint // walks the tree itself
	case nil:
		return nil
	case *core.FieldError:
		return []*core.FieldError{e}
	case interface{ Unwrap() error }:
		return fieldErrors(e.Unwrap())
	case interface{ Unwrap() []error }:
		var found []*core.FieldError
		for _, one := range e.Unwrap() {
			found = append(found, fieldErrors(one)...)
		}
		return found
	}
	return nil
}
