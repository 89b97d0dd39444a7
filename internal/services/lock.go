package services

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// lock is an exclusive lock on a file. The system lets it go when the process
// ends, however it ends.
type lock struct{ file *os.File }

// acquire waits until the lock on the file is free or ctx ends.
func acquire(ctx context.Context, path string) (*lock, error) {
	for {
		got, err := tryAcquire(path)
		if err != nil || got != nil {
			return got, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for the lock %s: %w", path, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// tryAcquire returns nil when another process or call holds the lock.
func tryAcquire(path string) (*lock, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the lock: %w", err)
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return &lock{file: file}, nil
	}
	_ = file.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, nil //nolint:nilnil // documented: nil is "taken"
	}
	return nil, fmt.Errorf("locking %s: %w", path, err)
}

func (l *lock) release() { _ = l.file.Close() }
