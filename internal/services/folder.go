package services

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// folder holds what one server writes: data, log, configuration.
type folder struct {
	path string
	// owner is held as long as the server may be used. A folder whose owner is
	// gone belongs to a process that was killed.
	owner *lock
	// lasting: the folder belongs to a run of [Up] and stays until [Down].
	lasting bool
}

// newFolder makes a folder for a server of this process, and removes those
// that killed processes left.
func newFolder(ctx context.Context, name string) (*folder, error) {
	base, err := folders()
	if err != nil {
		return nil, err
	}
	lock, err := sweep(ctx, base)
	if err != nil {
		return nil, err
	}
	defer lock.release() // only then may others look at the new folder
	path, err := os.MkdirTemp(base, name+"-")
	if err != nil {
		return nil, fmt.Errorf("making a folder for %s: %w", name, err)
	}
	owner, err := tryAcquire(path + "/owner")
	if err != nil {
		return nil, err
	}
	return &folder{path: path, owner: owner}, nil
}

// lastingFolder makes an empty folder for a server that outlives this process.
func lastingFolder(path string) (*folder, error) {
	if err := os.RemoveAll(path); err != nil {
		return nil, fmt.Errorf("emptying the folder %s: %w", path, err)
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("making the folder %s: %w", path, err)
	}
	return &folder{path: path, lasting: true}, nil
}

// remove deletes the folder. Its server must have ended.
func (f *folder) remove() error {
	err := os.RemoveAll(f.path)
	if f.owner != nil {
		f.owner.release()
	}
	if err != nil {
		return fmt.Errorf("removing a server's folder: %w", err)
	}
	return nil
}

func (f *folder) file(name string) string { return filepath.Join(f.path, name) }

// Sweep removes what servers of killed processes left on the disk.
func Sweep(ctx context.Context) error {
	base, err := folders()
	if err != nil {
		return err
	}
	lock, err := sweep(ctx, base)
	if err != nil {
		return err
	}
	lock.release()
	return nil
}

// folders returns the folder of all servers' folders.
func folders() (string, error) {
	base := filepath.Join(os.TempDir(), "outbox-services-"+strconv.Itoa(os.Getuid()))
	if err := os.MkdirAll(base, 0o700); err != nil {
		return "", fmt.Errorf("making a folder for servers: %w", err)
	}
	return base, nil
}

// sweep removes the folders without an owner and returns the lock under which
// folders are made.
func sweep(ctx context.Context, base string) (*lock, error) {
	lock, err := acquire(ctx, filepath.Join(base, "lock"))
	if err != nil {
		return nil, err
	}
	for _, owner := range glob(base, "*/owner") {
		abandoned, err := tryAcquire(owner)
		if err != nil || abandoned == nil {
			continue
		}
		_ = os.RemoveAll(filepath.Dir(owner)) // what can't be removed now is tried next time
		abandoned.release()
	}
	return lock, nil
}
