package mongo

import (
	"context"

	"github.com/gooutbox/outbox/core"
)

// reader reads the log for one cursor.
type reader struct{}

func newReader(*Store, readerConfig) *reader { return &reader{} }

func (r *reader) read(context.Context, core.ReadLimit) (core.Batch, error) { return core.Batch{}, nil }
func (r *reader) close(context.Context)                                    {}
