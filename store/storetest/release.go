package storetest

import (
	"time"

	"github.com/gooutbox/outbox/core"
)

func releaseRules() []rule {
	release := func(k *kit, c core.Cursor) {
		k.Helper()
		if err := c.Release(k.ctx); err != nil {
			k.Fatalf("releasing: %v", err)
		}
	}
	rules := []rule{
		{name: "LetsAStandbyInAtOnce", check: func(k *kit) {
			release(k, k.cursor())
			if _, err := k.tryAcquire(k.other, core.AcquireRequest{Owner: "second"}); err != nil {
				k.Errorf("acquiring a released cursor: %v", err)
			}
		}},
		{name: "KeepsTheFence", check: func(k *kit) {
			c := k.cursor()
			fence := c.Term().Fence
			release(k, c)
			if next := k.takeOver("second").Term().Fence; next <= fence {
				k.Errorf("the fence went from %d to %d", fence, next)
			}
		}},
		{name: "KeepsThePosition", check: func(k *kit) {
			c := k.cursor()
			k.append("a", "b")
			k.save(c, k.read(c, 2)[0])
			release(k, c)
			k.expect(k.takeOver("second"), "b")
		}},
		{name: "MayBeRepeated", check: func(k *kit) {
			c := k.cursor()
			release(k, c)
			release(k, c)
		}},
		{name: "RepeatedDoesNotFreeTheNextHolder", check: func(k *kit) {
			c := k.cursor()
			release(k, c)
			k.takeOver("second")
			if err := c.Release(k.ctx); err != nil {
				k.Logf("releasing again: %v", err) // either answer will do
			}
			if got := k.held().Owner; got != "second" {
				k.Errorf("the holder is %q, want \"second\"", got)
			}
		}},
		{name: "EndsAReadThatWaits", check: func(k *kit) {
			c := k.cursor()
			done := make(chan []core.Entry, 1)
			go func() {
				for {
					b, err := c.Read(k.ctx, core.ReadLimit{})
					if err != nil || len(b.Entries) > 0 {
						done <- b.Entries
						return
					}
				}
			}()
			// Gives the Read time to wait; the rule holds also if it doesn't yet.
			<-time.After(k.h.Lease / 10)
			release(k, c)
			select {
			case entries := <-done:
				if len(entries) > 0 {
					k.Errorf("read %v from an empty log", idsOf(entries))
				}
			case <-k.ctx.Done():
				k.Error("Read still waits after Release")
			}
		}},
	}
	for _, w := range fencedWrites() {
		rules = append(rules, rule{name: w.name + "AfterItIsFenced", check: func(k *kit) {
			c := k.cursor()
			k.append("a")
			e := k.read(c, 1)[0]
			release(k, c)
			k.wantFenced(w.name+" after Release", w.write(k.ctx, c, e))
			k.expect(k.takeOver("second"), "a")
		}})
	}
	return rules
}
