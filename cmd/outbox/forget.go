package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gooutbox/outbox/core"
)

func (p *program) forgetCursorCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "forget-cursor NAME",
		Short: "Remove a cursor whose route is gone for good",
		Long: "Forget-cursor removes a cursor that no relay holds, so that it keeps no events any more. Its jobs stay. A\n" +
			"route that runs under that name later begins anew, by its start. Where events lie before the cursor, that\n" +
			"its sink has not got, --yes is needed.",
		Args: wants(1),
	}
	acting := actFlags(cmd)
	yes := cmd.Flags().Bool("yes", false, "really, although events lie before it")
	return p.operation(cmd, actTimeout, func(ctx context.Context, s store, args []string, out output) error {
		name := args[0]
		act, err := acting.act()
		if err != nil {
			return err
		}
		cursor, err := findCursor(ctx, s, name)
		if err != nil {
			return err
		}
		switch {
		case cursor.Held:
			err = &core.HeldError{Cursor: name, Owner: cursor.Owner}
		case cursor.Lag.Events > 0 && !*yes && !act.DryRun:
			return &usageError{fmt.Errorf("%s before cursor %s: its sink has not got them; add --yes if it never shall",
				lieBefore(cursor.Lag.Events), name)}
		default:
			err = s.ForgetCursor(ctx, name, act)
		}
		if _, held := errors.AsType[*core.HeldError](err); held {
			return stillHeld(ctx, s, name, err)
		}
		if err != nil {
			return err
		}
		return out.print(forgottenJSON{"forget cursor", act.DryRun, name, cursor.Lag.Events, cursor.Parked, cursor.Failed}, func(p *page) {
			p.line("cursor %s is forgotten%s", plain(name), inDryRun(act))
			if n := cursor.Lag.Events; n > 0 {
				p.line("%s before it, which its sink has not got", lieBefore(n))
			}
			if jobs := cursor.Parked + cursor.Failed; jobs > 0 {
				p.line("its jobs stay, %d parked and %d failed: outbox discard --cursor %s removes the failed ones", cursor.Parked, cursor.Failed, plain(name))
			}
		})
	})
}

type forgottenJSON struct {
	Act    string `json:"act"`
	DryRun bool   `json:"dry_run"`
	Cursor string `json:"cursor"`
	// LagEvents lie before the cursor; its sink has not got them.
	LagEvents int64 `json:"lag_events"`
	Parked    int64 `json:"parked"`
	Failed    int64 `json:"failed"`
}

func lieBefore(n int64) string {
	if n == 1 {
		return "1 event lies"
	}
	return fmt.Sprintf("%d events lie", n)
}

// stillHeld adds to the error of a held cursor until when that is so, should its
// holder have died.
func stillHeld(ctx context.Context, s store, name string, err error) error {
	until, leaseErr := s.leaseUntil(ctx, name)
	if leaseErr != nil {
		return leaseErr
	}
	return fmt.Errorf("%w: stop the relays that run this route first; the lease of one that was killed ends at %s", err, clock(until))
}

// findCursor tells how a cursor stands, or which ones there are.
func findCursor(ctx context.Context, s store, name string) (core.CursorInfo, error) {
	stats, err := s.Stats(ctx)
	if err != nil {
		return core.CursorInfo{}, err
	}
	if i := slices.IndexFunc(stats.Cursors, func(c core.CursorInfo) bool { return c.Name == name }); i >= 0 {
		return stats.Cursors[i], nil
	}
	var names []string
	for _, c := range stats.Cursors {
		names = append(names, c.Name)
	}
	if len(names) == 0 {
		return core.CursorInfo{}, fmt.Errorf("no cursor is called %s: there is none at all", name)
	}
	return core.CursorInfo{}, fmt.Errorf("no cursor is called %s; there are: %s", name, strings.Join(names, ", "))
}
