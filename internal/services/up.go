package services

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// record is what is kept about a server that outlives the process that
// started it.
type record struct {
	Kind    string `json:"kind"`
	PID     int    `json:"pid"`
	Dir     string `json:"dir"`
	Address string `json:"address"`
}

// Up provides the selected servers and leaves them running in the background,
// with everything they write below dir. Those that run there already stay as
// they are; one that the environment names is used instead of starting one,
// and must answer. One that has ended is started anew, and is empty.
// It returns the variables that name all of them.
func Up(ctx context.Context, dir string, selection Selection) ([]Variable, error) {
	if err := selection.validate(); err != nil {
		return nil, err
	}
	if err := useGiven(ctx, selection.given()); err != nil {
		return nil, err
	}
	dir, lock, err := openRun(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer lock.release()
	records, err := readRecords(dir)
	if err != nil {
		return nil, err
	}
	var wanted []kind
	for _, kind := range selection.missing() {
		if !slices.ContainsFunc(records, func(r record) bool { return r.Kind == kind.name }) {
			wanted = append(wanted, kind)
		}
	}
	servers, err := startAll(ctx, wanted, selection.Ports, func(name string) (*folder, error) {
		return lastingFolder(filepath.Join(dir, name))
	})
	if err != nil {
		return nil, err
	}
	for i, server := range servers {
		pid, dir := server.identity()
		records = append(records, record{Kind: wanted[i].name, PID: pid, Dir: dir, Address: server.address()})
	}
	if err := writeRecords(dir, records); err != nil {
		for _, server := range servers {
			err = errors.Join(err, server.Close())
		}
		return nil, err
	}
	given := selection.given()
	records = slices.DeleteFunc(records, func(r record) bool {
		return slices.ContainsFunc(given, func(v Variable) bool { return v.Name == r.variable() })
	})
	return append(given, variables(records)...), nil
}

// Running returns the variables of the servers that Up left running in dir.
func Running(ctx context.Context, dir string) ([]Variable, error) {
	dir, lock, err := openRun(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer lock.release()
	records, err := readRecords(dir)
	return variables(records), err
}

// Down stops what Up left running in dir, and nothing else, and removes its
// data. It may be called when nothing runs.
func Down(ctx context.Context, dir string) error {
	dir, lock, err := openRun(ctx, dir)
	if err != nil {
		return err
	}
	defer lock.release()
	records, err := readRecords(dir)
	if err != nil {
		return err
	}
	var failure error
	for _, r := range records {
		failure = errors.Join(failure, r.end(ctx))
	}
	for _, kind := range kinds {
		if failure == nil {
			failure = os.RemoveAll(filepath.Join(dir, kind.name))
		}
	}
	if failure != nil {
		return fmt.Errorf("stopping servers: %w", failure)
	}
	return writeRecords(dir, nil)
}

// openRun makes the folder of a run and locks it.
func openRun(ctx context.Context, dir string) (string, *lock, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", nil, fmt.Errorf("finding the folder of the servers: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", nil, fmt.Errorf("making the folder of the servers: %w", err)
	}
	lock, err := acquire(ctx, filepath.Join(dir, "lock"))
	return dir, lock, err
}

func recordsFile(dir string) string { return filepath.Join(dir, "servers.json") }

// readRecords returns the servers of a run that still run.
func readRecords(dir string) ([]record, error) {
	text, err := os.ReadFile(recordsFile(dir))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading which servers run: %w", err)
	}
	var records []record
	if err := json.Unmarshal(text, &records); err != nil {
		return nil, fmt.Errorf("reading which servers run: %w; remove %s if none does", err, recordsFile(dir))
	}
	return slices.DeleteFunc(records, func(r record) bool { return !r.running() }), nil
}

// writeRecords replaces the list of servers at once.
func writeRecords(dir string, records []record) error {
	text, err := json.MarshalIndent(records, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding which servers run: %w", err)
	}
	fresh := recordsFile(dir) + ".new"
	if err := os.WriteFile(fresh, append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("writing which servers run: %w", err)
	}
	if err := os.Rename(fresh, recordsFile(dir)); err != nil {
		return fmt.Errorf("writing which servers run: %w", err)
	}
	return nil
}

func variables(records []record) []Variable {
	var found []Variable
	for _, r := range records {
		found = append(found, Variable{r.variable(), r.Address})
	}
	return found
}

// variable is the name of the environment variable for the server.
func (r record) variable() string {
	for _, kind := range kinds {
		if kind.name == r.Kind {
			return kind.variable
		}
	}
	return ""
}

// end stops the server and returns when it is gone.
func (r record) end(ctx context.Context) error {
	if err := r.signal(false); err != nil {
		return err
	}
	deadline := time.Now().Add(stopTime)
	for r.running() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s (process %d) ends: %w", r.Kind, r.PID, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			if err := r.signal(true); err != nil {
				return err
			}
			deadline = time.Now().Add(stopTime)
		}
	}
	return nil
}
