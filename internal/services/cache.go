package services

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// cacheVariable names the folder for downloads. It defaults to
// outbox-services in the user's cache folder.
const cacheVariable = "OUTBOX_CACHE"

// CacheDir returns the folder that keeps what was downloaded, and makes it.
func CacheDir() (string, error) {
	dir := os.Getenv(cacheVariable)
	if dir == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("finding the cache folder: %w; set %s to a folder", err, cacheVariable)
		}
		dir = filepath.Join(base, "outbox-services")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("finding the cache folder: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("making the cache folder: %w; set %s to another folder", err, cacheVariable)
	}
	return dir, nil
}

// cached returns the folder of that name in the cache. When it isn't there
// yet, fill makes its content; the folder appears only once fill succeeded.
// Processes that ask for the same folder wait for one another.
func cached(ctx context.Context, name string, fill func(ctx context.Context, dir string) error) (string, error) {
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, name)
	if exists(dir) {
		return dir, nil
	}
	lock, err := acquire(ctx, dir+".lock")
	if err != nil {
		return "", err
	}
	defer lock.release()
	if exists(dir) {
		return dir, nil
	}
	// What a process that was killed left behind is of no use: only the
	// holder of the lock works in this folder.
	unfinished := dir + ".unfinished"
	if err := os.RemoveAll(unfinished); err != nil {
		return "", fmt.Errorf("emptying the cache folder: %w", err)
	}
	if err := os.Mkdir(unfinished, 0o755); err != nil {
		return "", fmt.Errorf("making a cache folder: %w", err)
	}
	defer os.RemoveAll(unfinished) //nolint:errcheck // the next one to fill it tries again
	if err := fill(ctx, unfinished); err != nil {
		return "", err
	}
	if err := os.Rename(unfinished, dir); err != nil {
		return "", fmt.Errorf("finishing a cache folder: %w", err)
	}
	return dir, nil
}

// inCache tells whether the folder of that name is in the cache.
func inCache(name string) bool {
	cache, err := CacheDir()
	return err == nil && exists(filepath.Join(cache, name))
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
