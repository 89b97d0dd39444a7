package relay_test

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/relay"
	"github.com/gooutbox/outbox/store/memory"
)

func TestEveryProblemOfAConfigurationIsNamedAtOnce(t *testing.T) {
	t.Parallel()
	_, err := relay.New(relay.Config{
		Sinks:       map[string]core.Sink{"none": nil},
		CursorLease: time.Millisecond,
		Drain:       -1, CleanInterval: -1,
		StoreBackoff: relay.Backoff{Initial: 2 * time.Second, Max: time.Second},
		Owner:        strings.Repeat("x", 256),
		Routes: []relay.Route{
			{},
			{Name: "a", Sink: "missing", Lanes: -1, Window: -2, BatchEvents: -3, BatchBytes: -4, Timeout: -5},
			{Name: "a", Sink: "none", Start: core.Start{Now: true, At: time.Unix(1, 0)}},
			{Name: strings.Repeat("n", 256), Sink: "none", Match: relay.Match{Types: []string{"a*b", ""}}},
			{Name: "b", Sink: "none", Backoff: relay.Backoff{Initial: -1}, OutageBackoff: relay.Backoff{Max: -1}},
		},
	})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		"configuring the relay: ",
		"Log is nil",
		`Sinks["none"] is nil`,
		"CursorLease is 1ms: must be at least 100ms",
		"Drain is -1ns",
		"CleanInterval is -1ns",
		"StoreBackoff.Max is 1s, which is less than Initial, 2s",
		"Owner is too long: 256 bytes, limit 255",
		"Routes[0] has no Name",
		"Routes[0] has no Sink",
		`Routes[1] (a).Sink is "missing"`,
		"Routes[1] (a).Lanes is -1",
		"Routes[1] (a).Window is -2",
		"Routes[1] (a).BatchEvents is -3",
		"Routes[1] (a).BatchBytes is -4",
		"Routes[1] (a).Timeout is -5ns",
		"Routes[2] (a).Start has both Now and At",
		`Routes[2] is named "a" like an earlier one`,
		"Routes[3].Name is too long",
		`Routes[3].Match.Types[0] is "a*b"`,
		"Routes[3].Match.Types[1] is empty",
		"Routes[4] (b).Backoff.Initial is -1ns",
		"Routes[4] (b).OutageBackoff.Max is -1ns",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("not named: %q in\n%v", want, err)
		}
	}
}

func TestEveryProblemOfAWorkerIsNamedAtOnce(t *testing.T) {
	t.Parallel()
	_, err := relay.New(relay.Config{
		Sinks:           map[string]core.Sink{"s": core.SinkFunc(nil)},
		MaxRedeliveries: -1, JobPoll: -1,
		Workers: []relay.Worker{
			{},
			{Sink: "missing", Lanes: -1, BatchJobs: -2, Timeout: -3, Lease: time.Millisecond, Rate: -1, TenantRate: math.Inf(1)},
			{Sink: "s", Backoff: relay.Backoff{Initial: -1}, OutageBackoff: relay.Backoff{Max: -1}},
			{Sink: "s", TypeBackoff: map[string]relay.Backoff{"t": {Initial: 2, Max: 1}}},
		},
	})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		"Workers need a Queue",
		"MaxRedeliveries is -1",
		"JobPoll is -1ns",
		"Workers[0] has no Sink",
		"Workers[1] (missing): Sinks does not hold its sink",
		"Workers[1] (missing).Lanes is -1",
		"Workers[1] (missing).BatchJobs is -2",
		"Workers[1] (missing).Timeout is -3ns",
		"Workers[1] (missing).Lease is 1ms: must be at least 1s",
		"Workers[1] (missing).Rate is -1",
		"Workers[1] (missing).TenantRate is +Inf",
		"Workers[2] (s).Backoff.Initial is -1ns",
		"Workers[2] (s).OutageBackoff.Max is -1ns",
		`Workers[3] (s).TypeBackoff["t"].Max is 1ns, which is less than Initial`,
		`Workers[3] is for sink "s" like Workers[2]`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("not named: %q in\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "Log is nil") {
		t.Errorf("a log is asked for where there is no route: %v", err)
	}
}

func TestTheLeastConfigurationIsValid(t *testing.T) {
	t.Parallel()
	deliver := func(context.Context, core.Lease) error { return nil }
	_, err := relay.New(relay.Config{
		Log: memory.New(memory.Config{}), Sinks: map[string]core.Sink{"s": core.SinkFunc(deliver)},
		Routes: []relay.Route{{Name: "r", Sink: "s"}},
	})
	if err != nil {
		t.Error(err)
	}
}

func TestOwnersDiffer(t *testing.T) {
	t.Parallel()
	a, b := relay.NewOwner(), relay.NewOwner()
	if a == b || a == "" || len(a) > core.MaxNameBytes {
		t.Errorf("owners %q and %q", a, b)
	}
}
