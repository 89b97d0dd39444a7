package mongo

import (
	"testing"
	"time"
)

func TestRecoveriesThatLeadNowhereAreSpaced(t *testing.T) {
	t.Parallel()
	var p pace
	now := time.Unix(1_000_000, 0)
	if wait := p.wait(now); wait != 0 {
		t.Fatalf("the first recovery waits %s", wait)
	}
	want := time.Second
	for n := range 15 {
		p.began()
		now = now.Add(time.Hour) // the scan takes long, and leads nowhere
		if wait := p.wait(now); wait != want {
			t.Fatalf("recovery %d waits %s, want %s", n, wait, want)
		}
		if wait := p.wait(now.Add(want - 1)); wait != 1 {
			t.Fatalf("recovery %d: %s are left, want 1ns", n, wait)
		}
		if wait := p.wait(now.Add(want)); wait != 0 {
			t.Fatalf("recovery %d: %s are left after the pause", n, wait)
		}
		now = now.Add(want)
		want = min(2*want, 10*time.Minute)
	}
	p.gave()
	if wait := p.wait(now); wait != 0 {
		t.Errorf("after the stream gave something a recovery waits %s", wait)
	}
	p.began()
	if wait := p.wait(now); wait != time.Second {
		t.Errorf("the pause begins with %s again, want 1s", wait)
	}
}
