package services

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// awsVariable names the endpoint of the AWS services. The AWS SDKs read it too.
const awsVariable = "AWS_ENDPOINT_URL"

// motoVersion is the emulator's version.
const motoVersion = "5.2.5"

// AWSConfig says which emulator to start. The zero value is useful.
type AWSConfig struct {
	// Port is the port to listen on. Defaults to a free one.
	Port int
}

// AWS is an emulator of AWS services, moto, on their real protocols: SQS and
// SES among them. It takes any credentials and keeps everything in memory, so
// that a restart begins empty. Its methods may not be called concurrently.
type AWS struct {
	python, packages string
	folder           *folder
	port             *port
	process          *process
}

// StartAWS starts an emulator and returns when it answers. ctx bounds the start
// only. The caller must Close it.
func StartAWS(ctx context.Context, config AWSConfig) (*AWS, error) {
	return startAWS(ctx, config, func() (*folder, error) { return newFolder(ctx, "aws") })
}

func startAWS(ctx context.Context, config AWSConfig, newFolder func() (*folder, error)) (*AWS, error) {
	python, err := python.provide(ctx)
	if err != nil {
		return nil, err
	}
	packages, err := motoPackages(ctx, python)
	if err != nil {
		return nil, err
	}
	dir, err := newFolder()
	if err != nil {
		return nil, err
	}
	a := &AWS{python: python, packages: packages, folder: dir}
	if a.port, err = reservePort(config.Port); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	if err := a.Start(ctx); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

// Start starts the emulator on its old port, empty, and returns when it answers.
func (a *AWS) Start(ctx context.Context) error {
	if a.process.running() {
		return fmt.Errorf("starting the AWS emulator at %s: it is running", a.Endpoint())
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	// The script lies in the server's own folder, by which its process is known.
	script := a.folder.file("serve.py")
	text := fmt.Sprintf("import sys\nsys.path.insert(0, %q)\nfrom moto.server import main\nmain(sys.argv[1:])\n", a.packages)
	if err := os.WriteFile(script, []byte(text), 0o600); err != nil {
		return fmt.Errorf("writing the script of the AWS emulator: %w", err)
	}
	started, err := launch("the AWS emulator", a.folder.file("log"), a.folder.lasting, a.python, script,
		"-H", "127.0.0.1", "-p", strconv.Itoa(a.port.number))
	if err != nil {
		return err
	}
	a.process = started
	return started.await(ctx, func(ctx context.Context) error { return pingHTTP(ctx, a.Endpoint()) })
}

// Endpoint is the URL of all its services, for AWS_ENDPOINT_URL.
func (a *AWS) Endpoint() string { return "http://" + a.port.address() }

// Address is the host and port that it listens on.
func (a *AWS) Address() string { return a.port.address() }

// Kill ends the emulator without notice (SIGKILL), and with it all that it holds.
func (a *AWS) Kill() {
	if a.process != nil {
		a.process.kill()
	}
}

// Pause freezes the emulator (SIGSTOP): its connections stay open and nothing
// answers.
func (a *AWS) Pause() error { return a.process.signal(syscall.SIGSTOP) }

// Resume lets a paused emulator go on.
func (a *AWS) Resume() error { return a.process.signal(syscall.SIGCONT) }

// Close kills the emulator and removes its folder. It may be called twice.
func (a *AWS) Close() error {
	a.Kill()
	if a.port != nil {
		a.port.release()
	}
	return a.folder.remove()
}

func (a *AWS) address() string         { return a.Endpoint() }
func (a *AWS) identity() (int, string) { return a.process.pid, a.folder.path }

// HaveAWS tells whether the emulator is there without fetching it.
func HaveAWS() bool { return inCache("moto-" + motoVersion) }

// motoPackages returns the folder of the emulator's Python packages, and
// fetches them when they aren't there yet.
func motoPackages(ctx context.Context, python string) (string, error) {
	dir, err := cached(ctx, "moto-"+motoVersion, func(ctx context.Context, dir string) error {
		return pip(ctx, python, dir, "moto[server,sqs]=="+motoVersion)
	})
	if err != nil {
		return "", fmt.Errorf("fetching moto: %w", err)
	}
	return filepath.Clean(dir), nil
}

// pingHTTP returns an error if nothing answers there before ctx ends.
func pingHTTP(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return fmt.Errorf("it is no URL: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	return response.Body.Close()
}
