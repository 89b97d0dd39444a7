package relay_test

import (
	"context"
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
