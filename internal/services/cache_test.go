package services

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestCallersAtOnceFillTheCacheOnce(t *testing.T) {
	t.Setenv(cacheVariable, t.TempDir())
	var fills int // guarded by the cache's own lock: -race watches
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			dir, err := cached(t.Context(), "thing", func(_ context.Context, dir string) error {
				fills++
				return os.WriteFile(filepath.Join(dir, "content"), []byte("whole"), 0o600)
			})
			if err != nil {
				t.Error(err)
				return
			}
			if text, err := os.ReadFile(filepath.Join(dir, "content")); string(text) != "whole" {
				t.Errorf("content %q, %v", text, err)
			}
		})
	}
	all.Wait()
	if fills != 1 {
		t.Fatalf("filled %d times", fills)
	}
}

func TestAFailedFillLeavesNothingInTheCache(t *testing.T) {
	t.Setenv(cacheVariable, t.TempDir())
	broken := errors.New("broken")
	_, err := cached(t.Context(), "thing", func(_ context.Context, dir string) error {
		return errors.Join(broken, os.WriteFile(filepath.Join(dir, "half"), nil, 0o600))
	})
	if !errors.Is(err, broken) {
		t.Fatalf("the error is %v, want %v", err, broken)
	}
	if inCache("thing") {
		t.Fatal("half a download is in the cache")
	}
	dir, err := cached(t.Context(), "thing", func(context.Context, string) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if exists(filepath.Join(dir, "half")) {
		t.Fatal("the next fill found what the failed one left")
	}
}

func TestWhatAKilledProcessLeftInTheCacheIsReplaced(t *testing.T) {
	cache := t.TempDir()
	t.Setenv(cacheVariable, cache)
	if err := os.MkdirAll(filepath.Join(cache, "thing.unfinished", "half"), 0o700); err != nil {
		t.Fatal(err)
	}
	dir, err := cached(t.Context(), "thing", func(context.Context, string) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if exists(filepath.Join(dir, "half")) {
		t.Fatal("half a download is in the cache")
	}
}

func TestAMissingToolIsNamedWithItsCure(t *testing.T) {
	missing := tool{name: "Nothing", find: onPath("no-such-program"), packages: []string{"nothing-like-it"}}
	t.Setenv("PATH", t.TempDir()) // no apt-get here
	_, err := missing.provide(t.Context())
	if err == nil {
		t.Fatal("there is such a program")
	}
	for _, want := range []string{"Nothing", "no-such-program", "nothing-like-it"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error %q doesn't name %q", err, want)
		}
	}
}

func TestNoTwoCallsGetOnePort(t *testing.T) {
	taken := map[int]bool{}
	for range 200 {
		port, err := reservePort(0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(port.release)
		if taken[port.number] {
			t.Fatalf("port %d was given twice", port.number)
		}
		taken[port.number] = true
	}
}
