package relay_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/gooutbox/outbox/core"
)

func TestAWorkerTellsAnOperatorsPauseOnceAndItsEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		r := k.start(working())
		sink := core.PauseTarget{Scope: core.PauseSink, Name: "s"}
		pass(time.Second)
		if err := k.store.PauseBy(t.Context(), core.Pause{PauseTarget: sink}, core.Act{By: "jo"}); err != nil {
			t.Fatal(err)
		}
		k.enqueue(job("a"))
		pass(time.Minute)
		equal(t, "delivered", len(k.sink.got()), 0)
		equal(t, "lines when it began", k.log.with(slog.LevelWarn, "its worker waits"), 1)
		if err := k.store.ResumeBy(t.Context(), sink, core.Act{By: "jo"}); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		equal(t, "delivered", len(k.sink.got()), 1)
		equal(t, "lines when it began", k.log.with(slog.LevelWarn, "its worker waits"), 1)
		equal(t, "lines when it ended", k.log.with(slog.LevelInfo, "its worker goes on"), 1)
		r.stop()
	})
}
