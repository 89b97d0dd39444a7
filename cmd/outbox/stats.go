package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/gooutbox/outbox/core"
)

func (p *program) statsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "stats",
		Short: "Count jobs by state, and show how cursors and pauses stand",
		Long: "Stats counts jobs by state and sink, and shows the cursors with what is before them, and the pauses.\n" +
			"Completed jobs are counted for all sinks together.\n" +
			"A cursor that nobody holds keeps events from being removed: start its relay, or see forget-cursor.",
		Args: cobra.NoArgs,
	}
	return p.operation(cmd, lookTimeout, func(ctx context.Context, s store, _ []string, out output) error {
		stats, err := s.Stats(ctx)
		if err != nil {
			return err
		}
		return out.print(statsObject(stats), func(p *page) { statsPage(p, stats) })
	})
}

// The JSON form of core.Stats, for scripts: keys are only added.
type (
	statsJSON struct {
		At time.Time `json:"at"`
		countsJSON
		Completed        int64        `json:"completed"`
		LogWindowSeconds float64      `json:"log_window_seconds"`
		Sinks            []sinkJSON   `json:"sinks"`
		Pauses           []pauseJSON  `json:"pauses"`
		Cursors          []cursorJSON `json:"cursors"`
	}
	countsJSON struct {
		Ready              int64   `json:"ready"`
		Delayed            int64   `json:"delayed"`
		Active             int64   `json:"active"`
		Failed             int64   `json:"failed"`
		Unknown            int64   `json:"unknown"`
		OldestReadySeconds float64 `json:"oldest_ready_seconds"`
	}
	sinkJSON struct {
		Sink string `json:"sink"`
		countsJSON
	}
	pauseJSON struct {
		Scope  core.PauseScope `json:"scope"`
		Name   string          `json:"name"`
		Until  *time.Time      `json:"until"`
		Reason string          `json:"reason"`
		By     string          `json:"by"`
	}
	cursorJSON struct {
		Name            string  `json:"name"`
		Held            bool    `json:"held"`
		Owner           string  `json:"owner"`
		Fence           string  `json:"fence"`
		LagEvents       int64   `json:"lag_events"`
		LagBytes        int64   `json:"lag_bytes"`
		LagSeconds      float64 `json:"lag_seconds"`
		PlaceAgeSeconds float64 `json:"place_age_seconds"`
		Scanning        bool    `json:"scanning"`
		Settled         int64   `json:"settled"`
		Parked          int64   `json:"parked"`
		Failed          int64   `json:"failed"`
	}
)

func statsObject(s core.Stats) statsJSON {
	o := statsJSON{
		At:        s.At,
		Completed: s.Completed, LogWindowSeconds: s.LogWindow.Seconds(),
		countsJSON: countsJSON{s.Ready, s.Delayed, s.Active, s.Failed, s.Unknown, s.OldestReady.Seconds()},
		Sinks:      make([]sinkJSON, len(s.Sinks)), Pauses: make([]pauseJSON, len(s.Pauses)), Cursors: make([]cursorJSON, len(s.Cursors)),
	}
	for i, c := range s.Sinks {
		o.Sinks[i] = sinkJSON{c.Sink, countsJSON{c.Ready, c.Delayed, c.Active, c.Failed, c.Unknown, c.OldestReady.Seconds()}}
	}
	for i, p := range s.Pauses {
		o.Pauses[i] = pauseJSON{p.Scope, p.Name, timeOrNull(p.Until), p.Reason, p.By}
	}
	for i, c := range s.Cursors {
		o.Cursors[i] = cursorJSON{
			Name: c.Name, Held: c.Held, Owner: c.Owner, Fence: fmt.Sprintf("%016x", c.Fence),
			LagEvents: c.Lag.Events, LagBytes: c.LagBytes, LagSeconds: c.Lag.Age.Seconds(), PlaceAgeSeconds: c.PlaceAge.Seconds(),
			Scanning: c.Scanning, Settled: c.Settled, Parked: c.Parked, Failed: c.Failed,
		}
	}
	return o
}

// timeOrNull is null in JSON for no time.
func timeOrNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func statsPage(p *page, s core.Stats) {
	n := func(n int64) string { return strconv.FormatInt(n, 10) }
	oldest := func(ready int64, d time.Duration) string {
		if ready == 0 {
			return ""
		}
		return span(d)
	}
	rows := [][]string{{"JOBS OF", "READY", "DELAYED", "ACTIVE", "FAILED", "UNKNOWN", "COMPLETED", "OLDEST READY"}}
	for _, c := range s.Sinks {
		rows = append(rows, []string{
			"sink " + c.Sink, n(c.Ready), n(c.Delayed), n(c.Active), n(c.Failed), n(c.Unknown), "", oldest(c.Ready, c.OldestReady),
		})
	}
	p.table(append(rows, []string{
		"all sinks", n(s.Ready), n(s.Delayed), n(s.Active), n(s.Failed), n(s.Unknown), n(s.Completed), oldest(s.Ready, s.OldestReady),
	}))
	if len(s.Cursors) > 0 {
		rows = [][]string{{"CURSOR", "HELD BY", "BEFORE IT", "BYTES", "OLDEST", "PARKED", "FAILED", "PLACE"}}
		for _, c := range s.Cursors {
			rows = append(rows, []string{
				c.Name, holder(c), events(c.Lag.Events), bytesText(c.LagBytes), oldest(c.Lag.Events, c.Lag.Age), n(c.Parked), n(c.Failed), place(c, s.LogWindow),
			})
		}
		p.line("")
		p.table(rows)
	}
	if len(s.Pauses) > 0 {
		rows = [][]string{{"PAUSED", "UNTIL", "BY", "REASON"}}
		for _, pause := range s.Pauses {
			rows = append(rows, []string{targetText(pause.PauseTarget), untilText(pause.Until), orSink(pause.By), pause.Reason})
		}
		p.line("")
		p.table(rows)
	}
}

func holder(c core.CursorInfo) string {
	switch {
	case c.Held:
		return c.Owner
	case c.Owner == "":
		return "nobody"
	}
	return "nobody, was " + c.Owner
}

func events(n int64) string {
	if n == 1 {
		return "1 event"
	}
	return fmt.Sprintf("%d events", n)
}

// place tells how old a cursor's saved place is, against how long it can be
// read on from.
func place(c core.CursorInfo, window time.Duration) string {
	text := span(c.PlaceAge) + " old"
	if window > 0 {
		text += ", of " + span(window)
	}
	if c.Scanning {
		text += ", scanning"
	}
	return text
}

func targetText(t core.PauseTarget) string { return string(t.Scope) + " " + t.Name }

func untilText(t time.Time) string {
	if t.IsZero() {
		return "resumed"
	}
	return clock(t)
}

// orSink names who set a pause: sinks have no name there.
func orSink(by string) string {
	if by == "" {
		return "the sink"
	}
	return by
}
