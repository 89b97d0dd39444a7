package mongo

import (
	"context"

	"github.com/gooutbox/outbox/core"
)

func (s *Store) Clean(context.Context, core.CleanRequest) (core.CleanResult, error) {
	return core.CleanResult{}, nil
}
func (s *Store) Lag(context.Context, string) (core.Lag, error)      { return core.Lag{}, nil }
func (c *cursor) Park(ctx context.Context, entries []core.Parked) error { return nil }
