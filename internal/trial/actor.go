package trial

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// ActorUp is what an actor writes once SIGTERM stops it in good order.
const ActorUp = "the actor is up"

// Actor is the configuration of `tests/actor`: a relay whose one sink, "s",
// writes what it is given to a file and answers as told. Actors that share the
// file are processes with one destination: what stands in it came in this order.
type Actor struct {
	URI, Database string
	// Owner names the process.
	Owner string
	// Journal is the file.
	Journal string
	// Moods is a folder: while it holds a file "key-<key>" each event of that key
	// has the outcome that the file names, such as "refused". Optional.
	Moods string
	// Takes bounds the random time that the delivery of one event takes.
	Takes time.Duration
	// Seed and the shares of deliveries that end otherwise than delivered, 0 to 1.
	// An event of unknown outcome arrives every second time, and "killed" ends the
	// process.
	Seed   uint64
	Shares map[string]float64
	// PrefixPerKey lets a call hold several events of a key.
	PrefixPerKey bool

	// Route runs a cursor of that name. Empty runs none.
	Route string
	// Hold is its failure policy.
	Hold bool
	// Worker runs a worker, with leases of JobLease.
	Worker   bool
	JobLease time.Duration
	// BatchJobs and Lanes are those of the worker and of the route.
	BatchJobs, Lanes int
	// CursorLease, Backoff (the first and the longest), MaxAttempts and
	// MaxRedeliveries are the relay's. Zero means its default.
	CursorLease, BackoffInitial, BackoffMax time.Duration
	MaxAttempts, MaxRedeliveries            int
}

// BuildActor builds tests/actor into dir and returns its path. It is started by
// StartRelay.
func BuildActor(ctx context.Context, dir string, tags ...string) (string, error) {
	bin := filepath.Join(dir, "actor")
	args := []string{"build", "-o", bin}
	if len(tags) > 0 {
		args = append(args, "-tags", strings.Join(tags, ","))
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "github.com/gooutbox/outbox/tests/actor")...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the actor: %w\n%s", err, out)
	}
	return bin, nil
}

// Write writes the configuration to a file in dir and returns its path.
func (a Actor) Write(dir string) (string, error) {
	text, err := json.Marshal(a)
	if err != nil {
		return "", fmt.Errorf("writing the actor's configuration: %w", err)
	}
	path := filepath.Join(dir, a.Owner+".json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return "", fmt.Errorf("writing the actor's configuration: %w", err)
	}
	return path, nil
}

// ReadActor reads what Write has written.
func ReadActor(path string) (a Actor, err error) {
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &a)
	}
	if err != nil {
		return a, fmt.Errorf("reading the actor's configuration: %w", err)
	}
	return a, nil
}

// Note is one line of an actor's journal: the beginning of a delivery, or its
// end.
type Note struct {
	At    time.Time
	Owner string
	// End: the delivery ended so. Outcome is that of the sink; Arrived: the
	// destination has it.
	End     bool   `json:",omitempty"`
	Outcome string `json:",omitempty"`
	Arrived bool   `json:",omitempty"`
	// ID, Key and Version are the event's; Occurred is when it was made.
	ID, Key     string
	Version     int64
	Occurred    time.Time
	Attempt     int
	Redelivered bool `json:",omitempty"`
	Redriven    bool `json:",omitempty"`
	Fence       uint64
}

// ReadJournal reads what actors wrote, in order. A file that doesn't exist yet
// is empty, and a line that is being written is left out.
func ReadJournal(path string) ([]Note, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the journal: %w", err)
	}
	var notes []Note
	for line := range bytes.Lines(text) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break
		}
		var n Note
		if err := json.Unmarshal(line, &n); err != nil {
			return nil, fmt.Errorf("reading the journal: %w: %s", err, line)
		}
		notes = append(notes, n)
	}
	return notes, nil
}

// Arrivals are the records of what arrived, as Check takes them.
func Arrivals(notes []Note) []Record {
	var records []Record
	for i, n := range notes {
		if !n.Arrived {
			continue
		}
		value, _ := json.Marshal(body{Account: n.Key, Version: n.Version}) // never fails
		records = append(records, Record{
			Offset: int64(i), Key: n.Key, ID: n.ID, Fence: fmt.Sprintf("%016x", n.Fence), Value: value, At: n.At,
		})
	}
	return records
}
