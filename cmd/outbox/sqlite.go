package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/config"
	sqlitestore "github.com/gooutbox/outbox/store/sqlite"
)

// sqliteOptions is store.sqlite of a configuration.
type sqliteOptions struct {
	// Path of the file that the program keeps its data in.
	Path string `yaml:"path,required"`
	// BusyTimeout is how long a write waits for another process's.
	BusyTimeout config.Duration `yaml:"busy_timeout" min:"1ms"`
	// Codec opens payloads that producers sealed.
	Codec *codecOptions `yaml:"codec"`
}

func newSQLiteOptions() *sqliteOptions {
	return &sqliteOptions{BusyTimeout: config.Duration(sqlitestore.DefaultBusyTimeout)}
}

// Validate refuses what the store would refuse.
func (o *sqliteOptions) Validate(report config.Report) {
	if o.Codec != nil {
		o.Codec.validate("codec", report)
	}
	if o.Path == "" {
		return // reported as missing
	}
	s, err := sqlitestore.New(o.Path, o.store(parts{})) // opens nothing yet
	if err != nil {
		report("path", err.Error())
		return
	}
	_ = s.Close()
}

func (o *sqliteOptions) store(p parts) sqlitestore.Config {
	return sqlitestore.Config{
		BusyTimeout:        time.Duration(o.BusyTimeout),
		MeterProvider:      p.meters,
		CompletedRetention: time.Duration(p.queue.CompletedRetention),
		FailedRetention:    time.Duration(p.queue.FailedRetention),
		Retain:             sqlitestore.Retain(p.queue.Retain),
	}
}

// sqliteStore is a store as the commands need it.
type sqliteStore struct{ *sqlitestore.Store }

func (o *sqliteOptions) open(_ context.Context, p parts) (store, error) {
	// A relay makes the file, so that it may start before the program; a folder
	// that isn't there is a mistake.
	if _, err := os.Stat(filepath.Dir(o.Path)); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("opening store.sqlite.path: there is no folder %s", filepath.Dir(o.Path))
	}
	cfg := o.store(p)
	var err error
	if cfg.Codec, err = o.Codec.codec(); err != nil {
		return nil, err
	}
	s, err := sqlitestore.New(o.Path, cfg)
	if err != nil {
		return nil, err
	}
	return sqliteStore{s}, nil
}

func (s sqliteStore) ping(ctx context.Context) error { return s.Ping(ctx) }

func (s sqliteStore) leaseUntil(ctx context.Context, cursor string) (time.Time, error) {
	return s.LeaseUntil(ctx, cursor)
}

func (s sqliteStore) newest(ctx context.Context, n int) ([]core.Event, error) {
	return s.Newest(ctx, n)
}

func (s sqliteStore) close(context.Context) error { return s.Close() }

// ensureIndexes makes or migrates the file's tables.
func (s sqliteStore) ensureIndexes(ctx context.Context, dryRun bool) ([]string, error) {
	stored, known, err := s.Layout(ctx)
	switch {
	case err != nil:
		return nil, err
	case stored == known:
		return []string{"nothing to make: all is there"}, nil
	case dryRun:
		return []string{fmt.Sprintf("would make the tables of the outbox, layout %d, in %s", known, s.Path())}, nil
	}
	if err := s.Migrate(ctx); err != nil {
		return nil, err
	}
	return []string{fmt.Sprintf("made the tables of the outbox, layout %d, in %s", known, s.Path())}, nil
}

// ensureValidators has nothing to do: the tables have their checks from the
// beginning.
func (s sqliteStore) ensureValidators(context.Context, bool) ([]string, error) {
	return []string{"no validators to set: the tables themselves refuse what could not be delivered"}, nil
}

// lint tells which rows can't be delivered.
func (s sqliteStore) lint(ctx context.Context, limit, sample int) (lintReport, error) {
	if limit == 0 {
		limit = -1
	}
	found, err := s.Lint(ctx, sqlitestore.LintRequest{Limit: limit, Sample: sample})
	report := lintReport{Events: found.Events, Jobs: found.Jobs, Findings: make([]lintFinding, len(found.Findings))}
	for i, f := range found.Findings {
		report.Findings[i] = lintFinding{
			statusFail, f.Table, f.Field, f.Problem, "correct what writes it; docs/sqlite.md tells what each column holds", f.Count, f.Examples,
		}
	}
	return report, err
}

// check looks for what a relay needs of the file.
func (s sqliteStore) check(ctx context.Context, _ *config.File, found *findings) {
	stored, known, err := s.Layout(ctx)
	switch {
	case err != nil:
		found.fail("SQLite", reasonOf(err), "check store.sqlite.path, and the rights on the file and its folder")
		return
	case stored == 0:
		found.warn("SQLite", "there is no outbox in "+s.Path()+" yet", "run outbox indexes, or let the relay make it; check store.sqlite.path if you expected one")
	default:
		found.ok("SQLite", "%s, layout %d", s.Path(), stored)
	}
	// Whoever writes must be able to make the files beside it, too.
	folder := filepath.Dir(s.Path())
	probe, err := os.CreateTemp(folder, ".outbox-check-*")
	if err != nil {
		found.fail("folder", fmt.Sprintf("%s can't be written: %v", folder, err), "grant the user of the relay the right to write there: SQLite keeps its log beside the file")
		return
	}
	_ = probe.Close()
	_ = os.Remove(probe.Name())
	found.ok("folder", "%s can be written", folder)
	if stored != 0 && stored != known {
		found.warn("layout", fmt.Sprintf("the file has layout %d, this version makes %d", stored, known), "run outbox indexes once all processes are upgraded")
	}
}
