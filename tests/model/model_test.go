//go:build !race

package model_test

import (
	"strings"
	"testing"

	"github.com/gooutbox/outbox/tests/model"
)

// usual is the search that most rules are tried in.
func usual(keys string) model.Config {
	return model.Config{Keys: keys, Rules: model.All(), Faults: model.Faults{Refused: 2, Freezes: 1}}
}

func TestAllRulesKeepThePromise(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]model.Config{
		"one key":              usual("AAA"),
		"two keys":             usual("ABA"),
		"crash":                {Keys: "AAB", Rules: model.All(), Faults: model.Faults{Refused: 2, Crashes: 1}},
		"rejected":             {Keys: "AA", Rules: model.All(), Faults: model.Faults{Refused: 1, Rejected: 1, Freezes: 1}},
		"lost answer":          {Keys: "AA", Rules: model.All(), Faults: model.Faults{Refused: 1, Lost: 1, Freezes: 1}},
		"hold":                 {Keys: "AA", Rules: model.All(), Hold: true, Faults: model.Faults{Refused: 1, Rejected: 1, Crashes: 1}},
		"hold and three tries": {Keys: "AAB", Rules: model.All(), Hold: true, Faults: model.Faults{Refused: 2, Rejected: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := model.Search(c)
			if got.Broken != 0 || !got.Complete {
				t.Fatalf("%s (complete %v)\n%s", got.Broken, got.Complete, strings.Join(got.Trace, "\n"))
			}
			t.Logf("%d states, depth %d", got.States, got.Depth)
		})
	}
}

func TestEachRuleIsNeeded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		keys string
		drop func(*model.Rules)
		want model.Violation
	}{
		"park under the fence":            {"AAA", func(r *model.Rules) { r.FencedPark = false }, model.OrderBroken | model.KeyLentTwice},
		"settle under the token":          {"AAA", func(r *model.Rules) { r.FencedSettle = false }, 0},
		"load keys with jobs":             {"AAA", func(r *model.Rules) { r.LoadJobs = false }, model.OrderBroken},
		"load keys with lent jobs":        {"AAA", func(r *model.Rules) { r.LoadLeased = false }, model.OrderBroken},
		"load after raising the fence":    {"AAA", func(r *model.Rules) { r.LoadAfterFence = false }, model.OrderBroken},
		"a former holder's lease blocks":  {"AAA", func(r *model.Rules) { r.LeaseBlocks = false }, model.KeyLentTwice},
		"one event of a key a call":       {"AAA", func(r *model.Rules) { r.OneOfAKey = false }, model.OrderBroken},
		"followers are parked":            {"AAA", func(r *model.Rules) { r.Followers = false }, model.OrderBroken},
		"parks are visible in order":      {"AAA", func(r *model.Rules) { r.ParkInOrder = false }, model.OrderBroken},
		"park before the position":        {"AAA", func(r *model.Rules) { r.ParkBeforeSave = false }, model.PositionPassedUnsettled},
		"position is the settled prefix":  {"ABA", func(r *model.Rules) { r.SavePrefix = false }, model.PositionPassedUnsettled},
		"a key is released in one step":   {"AAA", func(r *model.Rules) { r.ReleaseInOneStep = false }, model.OrderBroken},
		"what has a job isn't sent":       {"AAA", func(r *model.Rules) { r.Known = false }, 0},
		"nor what a later job stands for": {"AAA", func(r *model.Rules) { r.KnownBelow = false }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := usual(c.keys)
			c.drop(&cfg.Rules)
			got := model.Search(cfg)
			if got.Broken == 0 || got.Broken&c.want != c.want {
				t.Fatalf("dropping the rule broke %q, want %q (%d states)", got.Broken, c.want, got.States)
			}
			t.Logf("%s after %d steps: %s", got.Broken, len(got.Trace), strings.Join(got.Trace, "; "))
		})
	}
}
