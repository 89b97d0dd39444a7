package main

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/gooutbox/outbox/relay"
)

func TestVerdictOfARelay(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 31, 8, 0, 0, 0, time.UTC)
	since := now.Add(-90 * time.Second)
	for name, c := range map[string]struct {
		status relay.Status
		want   []string
	}{
		"holding":     {relay.Status{Running: true, Routes: []relay.RouteStatus{{Name: "a", State: relay.Holding}}}, nil},
		"standing by": {relay.Status{Running: true, Routes: []relay.RouteStatus{{Name: "a", State: relay.Standby, HeldBy: "other"}}}, nil},
		"stopped":     {relay.Status{}, []string{"the relay is not running"}},
		"no holder": {
			relay.Status{Running: true, Routes: []relay.RouteStatus{{Name: "a", State: relay.Standby}}},
			[]string{"route a: no process holds its cursor"},
		},
		"store away": {
			relay.Status{Running: true, Routes: []relay.RouteStatus{{Name: "a", State: relay.Standby, StoreError: "no server", StoreSince: since}}},
			[]string{"route a: the store has failed for 1m30s: no server"},
		},
		"sink away": {relay.Status{Running: true, Routes: []relay.RouteStatus{
			{Name: "a", Sink: "s", State: relay.Waiting, SinkError: "refused", SinkSince: since}, {Name: "b", State: relay.Holding},
		}}, []string{"route a: sink s takes nothing since 1m30s: refused"}},
		"refused once": {relay.Status{Running: true, Routes: []relay.RouteStatus{
			{Name: "a", State: relay.Holding, BlockedKeys: 1, Blocked: &relay.BlockedKey{EventID: "e", Attempts: 1, Reason: "no topic"}},
		}}, nil},
		"poison": {relay.Status{Running: true, Routes: []relay.RouteStatus{
			{Name: "a", State: relay.Holding, BlockedKeys: 1, Blocked: &relay.BlockedKey{EventID: "e", Attempts: 3, Reason: "no topic"}},
		}}, []string{"route a: event e was refused 3 times and holds its key: no topic"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := judge(c.status, now)
			if !slices.Equal(v.Reasons, c.want) || v.Ready != (len(c.want) == 0) {
				t.Errorf("got %+v, want %q", v, c.want)
			}
		})
	}
}

func TestVerdictBeforeTheRelayRuns(t *testing.T) {
	t.Parallel()
	h := &health{}
	if v := h.verdict(); v.Ready || v.Reasons[0] != "the relay is starting" {
		t.Errorf("at first: %+v", v)
	}
	h.waitsFor(errors.New("no such host"))
	if v := h.verdict(); v.Ready || v.Reasons[0] != "waiting for the store: no such host" {
		t.Errorf("while waiting: %+v", v)
	}
}
