package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/relay"
	"github.com/gooutbox/outbox/store/memory"
)

var (
	healthNow   = time.Date(2026, 1, 31, 8, 0, 0, 0, time.UTC)
	healthSince = healthNow.Add(-90 * time.Second)
)

// situation is what a verdict is made of.
type situation struct {
	status relay.Status
	stats  seenStats
}

func running(routes ...relay.RouteStatus) relay.Status {
	return relay.Status{Running: true, Routes: routes}
}

func holding(name string) relay.RouteStatus {
	return relay.RouteStatus{Name: name, Sink: "events", State: relay.Holding, HeldBy: "me"}
}

func counted(s core.Stats) seenStats { return seenStats{Stats: s, at: healthNow} }

func (s situation) judge() verdict {
	var j judgement
	j.relay(s.status, healthNow)
	j.stats(s.status, s.stats, 5*time.Minute)
	return j.verdict()
}

// unready has a case for each verdict but starting.
func unready() map[string]situation {
	with := func(change func(r *relay.RouteStatus)) relay.Status {
		r := holding("kafka")
		change(&r)
		return running(r)
	}
	return map[string]situation{
		verdictStopped:       {status: relay.Status{}},
		verdictStoreDown:     {status: with(func(r *relay.RouteStatus) { r.StoreError, r.StoreSince = "no server", healthSince })},
		verdictCursorStopped: {status: running(relay.RouteStatus{Name: "kafka", State: relay.Standby})},
		verdictSinkDown:      {status: with(func(r *relay.RouteStatus) { r.SinkError, r.SinkSince = "connection refused", healthSince })},
		verdictPlaceAging: {running(holding("kafka")), counted(core.Stats{
			LogWindow: 10 * time.Hour, Cursors: []core.CursorInfo{{Name: "kafka", PlaceAge: 8*time.Hour + time.Minute}},
		})},
		verdictBehind: {running(holding("kafka")), counted(core.Stats{
			Cursors: []core.CursorInfo{{Name: "kafka", Lag: core.Lag{Events: 1200, Age: 6 * time.Minute}}},
		})},
		verdictPoisonKey: {status: with(func(r *relay.RouteStatus) {
			r.HeldKeys = 2
			r.Blocked = &relay.BlockedKey{EventID: "e-1", Attempts: 3, Reason: "no topic"}
			r.Stalled, r.StalledSince = "no topic", healthSince
		})},
		verdictClockApart: {running(holding("kafka")), seenStats{at: healthNow, apart: -7 * time.Second}},
	}
}

func TestEachVerdict(t *testing.T) {
	t.Parallel()
	for code, s := range unready() {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			v := s.judge()
			if v.Ready || v.Verdict != code {
				t.Errorf("%+v", v)
			}
			text, err := json.MarshalIndent(v, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			golden(t, "readyz-"+code+".json", string(text)+"\n")
		})
	}
	if cases := unready(); len(cases) != len(verdictOrder)-1 {
		t.Errorf("%d verdicts have a case: %v", len(cases), slices.Sorted(maps.Keys(cases)))
	}
}

// Where two apply, the one that stands first in the order is the verdict, and
// the reasons of both are told.
func TestTheMostPressingVerdictWins(t *testing.T) {
	t.Parallel()
	cases := unready()
	codes := verdictOrder[2:] // the process itself has one state
	for i, first := range codes {
		for _, second := range codes[i+1:] {
			a, b := cases[first], cases[second]
			both := situation{running(append(slices.Clone(a.status.Routes), b.status.Routes...)...), a.stats}
			both.stats.Cursors = append(slices.Clone(a.stats.Cursors), b.stats.Cursors...)
			both.stats.LogWindow = max(a.stats.LogWindow, b.stats.LogWindow)
			if b.stats.apart != 0 {
				both.stats.apart = b.stats.apart
			}
			if both.stats.at.IsZero() {
				both.stats.at = b.stats.at
			}
			if v := both.judge(); v.Verdict != first || len(v.Reasons) < 2 {
				t.Errorf("%s and %s: %+v", first, second, v)
			}
		}
	}
}

func TestWhatIsReady(t *testing.T) {
	t.Parallel()
	old := core.Stats{
		LogWindow: 10 * time.Hour,
		Cursors:   []core.CursorInfo{{Name: "kafka", PlaceAge: 9 * time.Hour, Lag: core.Lag{Events: 1, Age: time.Hour}}},
		Sinks:     []core.SinkStats{{Sink: "mail", Ready: 1, OldestReady: time.Hour}},
	}
	worker := relay.WorkerStatus{Sink: "mail"}
	paused := relay.Status{Running: true, Workers: []relay.WorkerStatus{{Sink: "mail", Paused: "unpaid"}}}
	for name, c := range map[string]struct {
		situation
		ready bool
	}{
		"holding":                           {situation{status: running(holding("kafka"))}, true},
		"standing by behind another":        {situation{running(relay.RouteStatus{Name: "kafka", State: relay.Standby, HeldBy: "other"}), counted(old)}, true},
		"refused once":                      {situation{status: running(relay.RouteStatus{Name: "a", State: relay.Holding, Blocked: &relay.BlockedKey{Attempts: 1}})}, true},
		"a scan needs no place":             {situation{running(holding("kafka")), counted(core.Stats{LogWindow: time.Hour, Cursors: []core.CursorInfo{{Name: "kafka", PlaceAge: time.Hour, Scanning: true}}})}, true},
		"a young server has a short window": {situation{running(holding("kafka")), counted(core.Stats{LogWindow: time.Minute, Cursors: []core.CursorInfo{{Name: "kafka", PlaceAge: time.Minute}}})}, true},
		"a sink that nobody works here":     {situation{running(holding("other")), counted(old)}, true},
		"a worker that is paused":           {situation{paused, counted(old)}, true},
		"a route that is paused":            {situation{running(relay.RouteStatus{Name: "kafka", State: relay.Paused}), counted(core.Stats{Cursors: []core.CursorInfo{{Name: "kafka", Lag: core.Lag{Age: time.Hour}}}})}, true},
		"a worker that is behind":           {situation{relay.Status{Running: true, Workers: []relay.WorkerStatus{worker}}, counted(old)}, false},
		"a clock nearly right":              {situation{running(holding("kafka")), seenStats{at: healthNow, apart: 4 * time.Second}}, true},
	} {
		if v := c.judge(); v.Ready != c.ready || v.Ready != (v.Verdict == verdictOK) {
			t.Errorf("%s: %+v", name, v)
		}
	}
	route := relay.RouteStatus{Name: "kafka", Sink: "k", State: relay.Paused, Paused: "they move house", PausedBy: "ada", PausedUntil: healthNow}
	noted := "route kafka: sink k is paused by ada until " + healthNow.UTC().Format(time.RFC3339) + ": they move house"
	if v := (situation{status: running(route)}).judge(); !v.Ready || v.Verdict != verdictOK || !slices.Equal(v.Reasons, []string{noted}) {
		t.Errorf("a paused route: %+v", v)
	}
	route.StoreError = "no primary"
	if v := (situation{status: running(route)}).judge(); v.Ready || v.Verdict != verdictStoreDown || len(v.Reasons) != 2 || v.Reasons[1] != noted {
		t.Errorf("a paused route without a store: %+v", v)
	}
	worker.SinkError, worker.SinkSince = "refused", healthSince
	if v := (situation{status: relay.Status{Running: true, Workers: []relay.WorkerStatus{worker}}}).judge(); v.Verdict != verdictSinkDown ||
		v.Reasons[0] != "worker of sink mail: it takes nothing since 1m30s: refused" {
		t.Errorf("a worker's sink: %+v", v)
	}
}

func TestVerdictBeforeTheRelayRuns(t *testing.T) {
	t.Parallel()
	h := &health{}
	if v := h.verdict(); v.Ready || v.Verdict != verdictStarting || v.Reasons[0] != "the relay is starting" {
		t.Errorf("at first: %+v", v)
	}
	h.waitsFor(errors.New("no such host"))
	if v := h.verdict(); v.Ready || v.Verdict != verdictStoreDown || v.Reasons[0] != "waiting for the store: no such host" {
		t.Errorf("while waiting: %+v", v)
	}
}

// A probe each second must not make the store count each second.
func TestStatsAreAskedForOnceInAWhile(t *testing.T) {
	t.Parallel()
	asked := 0
	store := memory.New(memory.Config{Fault: func(op string) error {
		if op == memory.OpAdmin {
			asked++
		}
		return nil
	}})
	c := statsCache{store: store}
	for range 3 {
		if seen := c.now(); seen.at.IsZero() || seen.apart != 0 {
			t.Errorf("%+v", seen)
		}
	}
	if asked != 1 {
		t.Errorf("the store was asked %d times", asked)
	}
}

func TestClocksApart(t *testing.T) {
	t.Parallel()
	from, to := healthNow, healthNow.Add(time.Second)
	for _, c := range []struct{ at, want time.Duration }{{0, 0}, {time.Second, 0}, {-2 * time.Second, -2 * time.Second}, {3 * time.Second, 2 * time.Second}} {
		if got := apart(from.Add(c.at), from, to); got != c.want {
			t.Error(fmt.Sprint(c.at), got, c.want)
		}
	}
}
