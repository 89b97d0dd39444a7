package services

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// tool is a program of the operating system that fetching or running a server
// needs.
type tool struct {
	name string
	// find returns the program's path, or why it can't be used.
	find func(ctx context.Context) (string, error)
	// packages are Debian packages that hold it. One is enough; the first
	// that can be installed is taken.
	packages []string
}

var (
	java   = tool{name: "Java 17 or later", find: findJava, packages: []string{"openjdk-17-jre-headless", "openjdk-21-jre-headless", "default-jre-headless"}}
	maven  = tool{name: "Maven", find: onPath("mvn"), packages: []string{"maven"}}
	python = tool{name: "Python with pip", find: findPip, packages: []string{"python3-pip"}}
	kcat   = tool{name: "kcat", find: onPath("kcat"), packages: []string{"kcat"}}
	fake   = tool{name: "libfaketime", find: findFaketime, packages: []string{"libfaketime"}}
)

// Kcat returns the path of kcat, a command-line client of Kafka, and installs
// it where it may.
func Kcat(ctx context.Context) (string, error) { return kcat.provide(ctx) }

// Faketime returns the path of libfaketime, which puts the clocks of programs
// wrong, and installs it where it may.
func Faketime(ctx context.Context) (string, error) { return fake.provide(ctx) }

// findFaketime looks where Debian and its like have it: the form for programs
// with threads.
func findFaketime(context.Context) (string, error) {
	for _, pattern := range []string{"/usr/lib/*/faketime/libfaketimeMT.so.1", "/usr/lib*/faketime/libfaketimeMT.so.1"} {
		if found := glob("/", pattern); len(found) > 0 {
			return found[0], nil
		}
	}
	return "", fmt.Errorf("libfaketimeMT.so.1: %w", exec.ErrNotFound)
}

// provide returns the path of the tool. A missing one is installed with
// apt-get if this process may; otherwise the error names the command to run.
func (t tool) provide(ctx context.Context) (string, error) {
	path, missing := t.find(ctx)
	if missing == nil {
		return path, nil
	}
	if err := install(ctx, t.packages); err != nil {
		return "", fmt.Errorf("looking for %s: %w; %w", t.name, missing, err)
	}
	path, err := t.find(ctx)
	if err != nil {
		return "", fmt.Errorf("looking for %s after installing it: %w", t.name, err)
	}
	return path, nil
}

// install installs the first of the packages that apt-get can find.
func install(ctx context.Context, packages []string) error {
	byHand := fmt.Errorf("to install it, run: sudo apt-get install -y --no-install-recommends %s", packages[0])
	apt, err := exec.LookPath("apt-get")
	if err != nil {
		return fmt.Errorf("there is no apt-get here; install the like of Debian's package %s", packages[0])
	}
	if os.Geteuid() != 0 {
		return byHand
	}
	cache, err := CacheDir()
	if err != nil {
		return err
	}
	lock, err := acquire(ctx, filepath.Join(cache, "apt-get.lock"))
	if err != nil {
		return err
	}
	defer lock.release()
	var failure error
	for _, fresh := range []bool{false, true} { // package lists may be missing or old
		if fresh {
			if _, err := output(ctx, apt, "-q", "-o", "DPkg::Lock::Timeout=300", "update"); err != nil {
				return fmt.Errorf("%w; %w", byHand, err)
			}
		}
		for _, name := range packages {
			progress("installing the package %s", name)
			_, failure = output(ctx, apt, "-q", "-y", "-o", "DPkg::Lock::Timeout=300", "install", "--no-install-recommends", name)
			if failure == nil {
				return nil
			}
		}
	}
	return fmt.Errorf("%w; %w", byHand, failure)
}

func onPath(program string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return exec.LookPath(program) }
}

var javaVersion = regexp.MustCompile(`version "(\d+)`)

func findJava(ctx context.Context) (string, error) {
	path, err := exec.LookPath("java")
	if err != nil {
		home := os.Getenv("JAVA_HOME")
		if home == "" {
			return "", err
		}
		path = filepath.Join(home, "bin", "java")
	}
	text, err := output(ctx, path, "-version")
	if err != nil {
		return "", err
	}
	found := javaVersion.FindStringSubmatch(text)
	if found == nil {
		return "", fmt.Errorf("can't tell the version of %s", path)
	}
	if major, _ := strconv.Atoi(found[1]); major < 17 {
		return "", fmt.Errorf("%s is version %s", path, found[1])
	}
	return path, nil
}

// findPip returns a Python that has pip.
func findPip(ctx context.Context) (string, error) {
	failure := exec.ErrNotFound
	for _, name := range []string{"python3", "python", "/usr/bin/python3"} {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		if _, err := output(ctx, path, "-m", "pip", "--version"); err != nil {
			failure = err
			continue
		}
		return path, nil
	}
	return "", failure
}

// output runs a program to its end and returns what it printed. The error of a
// failed one holds the end of that.
func output(ctx context.Context, program string, args ...string) (string, error) {
	return outputIn(ctx, "", program, args...)
}

// outputIn is [output] with a working folder.
func outputIn(ctx context.Context, dir, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C")
	text, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("running %s: %w: %s", filepath.Base(program), err, tail(string(text), 12))
	}
	return string(text), nil
}

// tail returns the last lines of a text.
func tail(text string, lines int) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// Progress is where slow steps are told, a line each. It defaults to nowhere.
// Set it before the first call.
var Progress io.Writer = io.Discard

func progress(format string, args ...any) {
	fmt.Fprintf(Progress, "services: "+format+"\n", args...)
}
