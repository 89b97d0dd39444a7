package memory_test

import (
	"testing"

	"github.com/gooutbox/outbox/consumer/dedupe"
	"github.com/gooutbox/outbox/consumer/dedupe/dedupetest"
	"github.com/gooutbox/outbox/consumer/dedupe/memory"
)

func TestStore(t *testing.T) {
	t.Parallel()
	dedupetest.Run(t, func(*testing.T) dedupe.Store { return memory.New() })
}
