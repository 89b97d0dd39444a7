// Package folder is a mail.Transport for development: each mail becomes an .eml
// file in a folder, which mail programs open. Nothing is sent anywhere.
package folder

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/gooutbox/outbox/core"
	mailsink "github.com/gooutbox/outbox/sink/mail"
)

// ErrClosed is the reason of what Send answers after Close.
var ErrClosed = errors.New("the folder transport is closed")

// Transport writes files. Make it with New. Its methods may be called by several
// goroutines at once.
type Transport struct {
	dir    string
	closed atomic.Bool
}

var (
	_ mailsink.Transport = (*Transport)(nil)
	_ core.Checker       = (*Transport)(nil)
)

// New makes a transport that writes into a folder, which it makes if it isn't
// there.
func New(dir string) (*Transport, error) {
	if dir == "" {
		return nil, errors.New("configuring the mail folder: Dir is missing")
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("making the mail folder: %w", err)
	}
	return &Transport{dir: dir}, nil
}

// Send writes the mail to JOBID.eml: the message as it would be sent, after the
// fields X-Envelope-From and X-Envelope-To, which tell blind copies too. A file is
// there whole or not at all; a further attempt replaces it. Files are for their
// owner only.
func (t *Transport) Send(ctx context.Context, e mailsink.Envelope) []core.Result {
	results := make([]core.Result, len(e.Recipients))
	result := t.write(ctx, e)
	for i := range results {
		results[i] = result
	}
	return results
}

func (t *Transport) write(ctx context.Context, e mailsink.Envelope) core.Result {
	if t.closed.Load() {
		return core.Result{Outcome: core.NotAttempted, Err: ErrClosed}
	}
	if err := ctx.Err(); err != nil {
		return core.Result{Outcome: core.NotAttempted, Err: err}
	}
	name := fileName(e.JobID)
	head := "X-Envelope-From: <" + e.Sender + ">\r\nX-Envelope-To: <" + strings.Join(e.Recipients, ">,\r\n <") + ">\r\n"
	file, err := os.CreateTemp(t.dir, "."+name+"-*")
	if err != nil {
		return core.Result{Outcome: core.Unavailable, Err: fmt.Errorf("writing the mail: %w", err)}
	}
	_, err = file.Write(append([]byte(head), e.Message...))
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), filepath.Join(t.dir, name))
	}
	if err != nil {
		_ = os.Remove(file.Name())
		return core.Result{Outcome: core.Unavailable, Err: fmt.Errorf("writing the mail: %w", err)}
	}
	return core.Result{Outcome: core.Delivered, Receipt: name}
}

// fileName is the job's id with whatever can't be in a file's name replaced.
func fileName(id string) string {
	return strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '_'
	}, id) + ".eml"
}

// Check tells whether the folder is there.
func (t *Transport) Check(context.Context) error {
	if _, err := os.Stat(t.dir); err != nil {
		return fmt.Errorf("looking for the mail folder: %w", err)
	}
	return nil
}

// Close lets nothing be written any more.
func (t *Transport) Close(context.Context) error {
	t.closed.Store(true)
	return nil
}
