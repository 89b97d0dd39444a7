package services_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gooutbox/outbox/internal/services"
	"github.com/gooutbox/outbox/internal/servicetest"
)

// helperVariable makes this test program play another one.
const helperVariable = "OUTBOX_SERVICES_TEST"

func TestMain(m *testing.M) {
	switch os.Getenv(helperVariable) {
	case "":
		os.Exit(m.Run())
	case "run": // is what `services run` is
		status, err := services.Run(context.Background(), services.Selection{Only: []string{"standalone"}}, os.Args[1:])
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			status = 99
		}
		os.Exit(status)
	case "start": // a test that will be killed
		server, err := services.StartMongod(context.Background(), services.MongodConfig{Standalone: true})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(filepath.Dir(server.Nodes()[0].Log()))
		select {}
	}
}

// program is this test program in another part.
func program(t *testing.T, part string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Env = append(os.Environ(), helperVariable+"="+part)
	cmd.Stderr = os.Stderr
	return cmd
}

// processesOf returns the processes whose command line names the text.
func processesOf(t *testing.T, text string) []int {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil || len(files) == 0 {
		t.Skip("this system has no /proc")
	}
	var found []int
	for _, file := range files {
		line, err := os.ReadFile(file)
		if err == nil && strings.Contains(string(line), text) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			found = append(found, pid)
		}
	}
	return found
}

func awaitNoProcess(t *testing.T, text string) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); len(processesOf(t, text)) != 0; {
		if time.Now().After(deadline) {
			t.Fatalf("processes %v still run on %s", processesOf(t, text), text)
		}
		time.Sleep(10 * time.Millisecond) // another process's end can't be waited for
	}
}

func TestServersEndWithTheProcessThatStartedThem(t *testing.T) {
	servicetest.NeedMongod(t)
	cmd := program(t, "start")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	dir := strings.TrimSpace(line)
	if len(processesOf(t, dir)) != 1 {
		t.Fatalf("processes %v run on %s, want one", processesOf(t, dir), dir)
	}
	if err := services.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Fatalf("sweeping removed the data of a running server: %v", err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // was killed
	awaitNoProcess(t, dir)
	if err := services.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("the data is still there: %v", err)
	}
}

func TestRunPassesEnvironmentAndStatus(t *testing.T) {
	servicetest.NeedMongod(t)
	t.Setenv("MONGODB_STANDALONE_URL", "")
	out, err := program(t, "run", "sh", "-c", "echo $MONGODB_STANDALONE_URL; exit 7").Output()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Fatalf("running: %v, want exit status 7", err)
	}
	if !strings.HasPrefix(string(out), "mongodb://127.0.0.1:") {
		t.Fatalf("the command saw %q", out)
	}
}

func TestRunPassesSignalsAndStopsItsServers(t *testing.T) {
	servicetest.NeedMongod(t)
	t.Setenv("MONGODB_STANDALONE_URL", "")
	cmd := program(t, "run", "sh", "-c", `trap 'exit 5' TERM; echo $MONGODB_STANDALONE_URL; while :; do sleep 0.05; done`)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 5 {
		t.Fatalf("running: %v, want the command's exit status 5", err)
	}
	port := strings.TrimSuffix(strings.TrimPrefix(line, "mongodb://127.0.0.1:"), "/?directConnection=true\n")
	if left := processesOf(t, "\x00--port\x00"+port+"\x00"); len(left) != 0 {
		t.Fatalf("processes %v still listen on port %s", left, port)
	}
}

func TestUpTwiceReturnsTheRunningServersAndDownStopsThem(t *testing.T) {
	servicetest.NeedMongod(t)
	given, err := services.StartMongod(t.Context(), services.MongodConfig{Standalone: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := given.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Setenv("MONGODB_URL", given.URL())
	t.Setenv("MONGODB_STANDALONE_URL", "")
	dir := t.TempDir()
	t.Cleanup(func() {
		if err := services.Down(context.Background(), dir); err != nil {
			t.Error(err)
		}
	})
	selection := services.Selection{Only: []string{"mongodb", "standalone"}}
	first, err := services.Up(t.Context(), dir, selection)
	if err != nil {
		t.Fatal(err)
	}
	if len(first) != 2 || first[0].Value != given.URL() {
		t.Fatalf("up gave %v, want the given replica set and a standalone", first)
	}
	pids := processesOf(t, dir)
	second, err := services.Up(t.Context(), dir, selection)
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(first) != fmt.Sprint(second) || fmt.Sprint(pids) != fmt.Sprint(processesOf(t, dir)) || len(pids) != 1 {
		t.Fatalf("up gave %v with processes %v, then %v with %v", first, pids, second, processesOf(t, dir))
	}
	// One that died is replaced.
	if err := syscall.Kill(pids[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	awaitNoProcess(t, dir)
	if _, err := services.Up(t.Context(), dir, selection); err != nil {
		t.Fatal(err)
	}
	if got := processesOf(t, dir); len(got) != 1 {
		t.Fatalf("processes %v, want a fresh one", got)
	}
	for range 2 {
		if err := services.Down(t.Context(), dir); err != nil {
			t.Fatal(err)
		}
	}
	awaitNoProcess(t, dir)
	if running, err := services.Running(t.Context(), dir); err != nil || len(running) != 0 {
		t.Fatalf("running: %v, %v", running, err)
	}
}

func TestDownSparesAProcessThatGotAnOldNumber(t *testing.T) {
	bystander := exec.CommandContext(t.Context(), "sleep", "60")
	if err := bystander.Start(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	text := fmt.Sprintf(`[{"kind":"kafka","pid":%d,"dir":%q,"address":"127.0.0.1:1"}]`, bystander.Process.Pid, filepath.Join(dir, "kafka"))
	if err := os.WriteFile(filepath.Join(dir, "servers.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := services.Down(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	if err := bystander.Process.Signal(syscall.Signal(0)); err != nil {
		t.Fatalf("the process is gone: %v", err)
	}
	_ = bystander.Process.Kill()
	var exit *exec.ExitError
	if err := bystander.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("the process ended so: %v", err)
	}
}

func TestAnUnknownServerIsNamed(t *testing.T) {
	_, err := services.Up(t.Context(), t.TempDir(), services.Selection{Only: []string{"postgres"}})
	if err == nil || !strings.Contains(err.Error(), `"postgres"`) {
		t.Fatalf("the error is %v", err)
	}
}
