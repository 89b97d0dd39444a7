package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/config"
)

// closeTimeout is how long connections may take to end.
const closeTimeout = 5 * time.Second

// openSinks makes the sinks that routes and workers use.
func openSinks(file *config.File, p parts) (map[string]core.Sink, error) {
	var used []string
	for _, route := range file.Routes {
		used = append(used, route.Sink)
	}
	for _, worker := range file.Workers {
		used = append(used, worker.Sink)
	}
	sinks := map[string]core.Sink{}
	for _, name := range used {
		if sinks[name] != nil {
			continue
		}
		sink, err := file.Sinks[name].Options.(sinkOptions).open(p)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("setting up sinks.%s: %w", name, err), closeSinks(sinks))
		}
		sinks[name] = sink
	}
	return sinks, nil
}

// closeSinks closes all of them, waiting no longer than closeTimeout.
func closeSinks(sinks map[string]core.Sink) error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(sinks)) {
		if err := sinks[name].Close(ctx); err != nil {
			errs = append(errs, fmt.Errorf("closing sinks.%s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// openStore makes the store.
func openStore(ctx context.Context, file *config.File, p parts) (store, error) {
	p.queue = file.Queue
	return file.Store.Options.(storeOptions).open(ctx, p)
}

// closeStore ends its connections, waiting no longer than closeTimeout.
func closeStore(s store) error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	return s.close(ctx)
}
