package mongo

import (
	"context"
	"errors"
	"time"

	"github.com/gooutbox/outbox/core"
)

// OpenJobs lists the jobs that are still to be delivered, see core.Cursor.
func (c *cursor) OpenJobs(context.Context) ([]core.OpenJob, error) { return nil, errors.ErrUnsupported }

// ClaimJobs lends ready jobs of the cursor, see core.Cursor.
func (c *cursor) ClaimJobs(context.Context, []core.OpenJob, time.Duration) ([]*core.Claimed, error) {
	return nil, errors.ErrUnsupported
}
