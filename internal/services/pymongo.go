package services

import (
	"context"
	"fmt"
	"os"
	"os/exec"
)

// pymongoVersion is the version of MongoDB's driver for Python.
const pymongoVersion = "4.15.3"

// Python returns a command that runs a Python script which may import pymongo,
// the driver for MongoDB; pip fetches it once.
func Python(ctx context.Context, script string, args ...string) (*exec.Cmd, error) {
	program, err := python.provide(ctx)
	if err != nil {
		return nil, err
	}
	packages, err := cached(ctx, "pymongo-"+pymongoVersion, func(ctx context.Context, dir string) error {
		return pip(ctx, program, dir, "pymongo=="+pymongoVersion)
	})
	if err != nil {
		return nil, fmt.Errorf("fetching pymongo: %w", err)
	}
	cmd := exec.CommandContext(ctx, program, append([]string{script}, args...)...)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+packages)
	return cmd, nil
}

// pip installs a package into a folder.
func pip(ctx context.Context, python, dir, what string) error {
	progress("fetching %s", what)
	return retry(ctx, func() error {
		_, err := output(ctx, python, "-m", "pip", "install", "-q", "--no-cache-dir", "--disable-pip-version-check", "--target", dir, what)
		return err
	})
}
