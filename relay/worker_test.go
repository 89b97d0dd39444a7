package relay_test

import (
	"testing"
	"time"
)

func TestJobsAreDelivered(t *testing.T) {
	inBubble(t, func(t *testing.T, k *kit) {
		r := k.start(working())
		pass(time.Second)
		k.enqueue(jobs("j", 1000)...)
		pass(time.Second)
		equal(t, "delivered", len(k.sink.got()), 1000)
		k.counts("after", 0, 0, 1000, 0)
		r.stop()
		equal(t, "log lines", k.log.all(-4), 0)
	})
}
