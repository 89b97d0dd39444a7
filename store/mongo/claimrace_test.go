package mongo

import (
	"testing"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
)

// Between the two commands of a claim another worker has the job, and it comes
// back: what was found of it is out of date.
func TestAJobThatCameBackSinceItWasFoundIsNotLent(t *testing.T) {
	t.Parallel()
	var hook commandHook
	s := newStore(t, servicetest.Database(t, hook.options()), Config{})
	other, err := New(servicetest.Mongo(t).Database(s.db.Name()), Config{})
	if err != nil {
		t.Fatal(err)
	}
	enqueue(t, s, mails(3)...)
	hook.mu.Lock()
	hook.command, hook.run = "update", func() {
		settleAll(t, other, core.Settlement{Kind: core.Retry, Failure: core.Failure{Code: core.CodeRefused}}, claim(t, other, 3)...)
	}
	hook.mu.Unlock()
	for _, c := range claim(t, s, 3) {
		if c.Lease.Attempt != 2 {
			t.Errorf("job %s was lent in attempt %d, want 2", c.ID, c.Lease.Attempt)
		}
	}
	hook.mu.Lock()
	defer hook.mu.Unlock()
	if hook.run != nil {
		t.Error("the claim sent no update")
	}
}
