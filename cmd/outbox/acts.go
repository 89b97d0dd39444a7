package main

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/spf13/cobra"
)

func (p *program) actsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "acts",
		Short: "List what operators did, when and why",
		Long:  "Acts lists retries, discards, pauses and the like, the newest first, with who did them and why.",
		Args:  cobra.NoArgs,
	}
	limit := cmd.Flags().Int("limit", 50, "acts at most")
	return p.operation(cmd, lookTimeout, func(ctx context.Context, s store, _ []string, out output) error {
		if *limit < 1 {
			return &usageError{errors.New("--limit must be 1 or more")}
		}
		acts, err := s.Acts(ctx, *limit)
		if err != nil {
			return err
		}
		list := make([]recordJSON, len(acts))
		rows := [][]string{{"AT", "BY", "ACT", "TARGET", "COUNT", "REASON"}}
		for i, a := range acts {
			list[i] = recordJSON{a.At, a.By, a.What, a.Target, a.Count, a.Reason}
			rows = append(rows, []string{clock(a.At), a.By, a.What, cut(a.Target, reasonWidth), strconv.FormatInt(a.Count, 10), a.Reason})
		}
		return out.print(map[string]any{"acts": list}, func(p *page) {
			if len(acts) == 0 {
				p.line("nothing was done yet")
				return
			}
			p.table(rows)
		})
	})
}

type recordJSON struct {
	At     time.Time `json:"at"`
	By     string    `json:"by"`
	What   string    `json:"act"`
	Target string    `json:"target"`
	Count  int64     `json:"count"`
	Reason string    `json:"reason"`
}
