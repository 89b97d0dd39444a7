// Command services provides the real servers that tests, demo and benchmarks
// use, and the environment variables that name them.
//
//	services up     start them in the background and print export lines
//	services env    print the export lines of those that run
//	services down   stop what up started
//	services run -- command …   start them, run the command, stop them
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/gooutbox/outbox/internal/services"
)

const usage = `usage: services up | down | env | run [flags] [-- command …]

  up     start the servers in the background and print export lines
  env    print the export lines of those that run
  down   stop what up started
  run    start servers of its own, run the command, stop them

A server that MONGODB_URL, MONGODB_STANDALONE_URL, KAFKA_BROKERS, AMQP_URL or
AWS_ENDPOINT_URL names is used instead of starting one. Downloads are kept in OUTBOX_CACHE.

Data lives as long as its server: one that has ended is empty
when up starts it again, topics and databases included.
`

func main() {
	services.Progress = os.Stderr
	status, err := execute(os.Args[1:], os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "services:", err)
		status = max(status, 1)
	}
	os.Exit(status)
}

func execute(args []string, out io.Writer) (int, error) {
	flags := flag.NewFlagSet("services", flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usage, "\nFlags:\n")
		flags.PrintDefaults()
	}
	dir := flags.String("dir", ".cache/services", "folder of the servers that up starts")
	only := flags.String("only", "", "the servers to provide, of mongodb,standalone,kafka,rabbitmq,aws (default all)")
	ports := flags.String("ports", "", "ports to use, like mongodb=27017,kafka=9092 (default free ones)")
	if len(args) == 0 {
		flags.Usage()
		return 2, nil
	}
	if err := flags.Parse(args[1:]); err != nil {
		return 2, err
	}
	selection, err := parseSelection(*only, *ports)
	if err != nil {
		return 2, err
	}
	if args[0] == "run" {
		if *only == "" {
			tools(context.Background())
		}
		return services.Run(context.Background(), selection, flags.Args())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	switch args[0] {
	case "up":
		tools(ctx)
		variables, err := services.Up(ctx, *dir, selection)
		return 0, export(out, variables, err)
	case "env":
		variables, err := services.Running(ctx, *dir)
		return 0, export(out, variables, err)
	case "down":
		return 0, down(ctx, *dir)
	}
	flags.Usage()
	return 2, fmt.Errorf("there is no command %q", args[0])
}

// down stops what up started.
func down(ctx context.Context, dir string) error {
	stopped, err := services.Running(ctx, dir)
	if err != nil {
		return err
	}
	if err := services.Down(ctx, dir); err != nil {
		return err
	}
	remind(os.Stderr, stopped, os.Getenv)
	return nil
}

// remind tells which variables name servers that were stopped: a shell that
// evaluated the lines of up still has them.
func remind(w io.Writer, stopped []services.Variable, getenv func(string) string) {
	var names []string
	for _, v := range stopped {
		if getenv(v.Name) == v.Value {
			names = append(names, v.Name)
		}
	}
	if len(names) > 0 {
		fmt.Fprintf(w, "services: variables of this shell still point there; run: unset %s\n", strings.Join(names, " "))
	}
}

// tools provides kcat. Only few need it, so its lack stops nobody.
func tools(ctx context.Context) {
	if _, err := services.Kcat(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "services: going on without kcat:", err)
	}
}

func export(out io.Writer, variables []services.Variable, err error) error {
	if err != nil {
		return err
	}
	for _, variable := range variables {
		if _, err := fmt.Fprintln(out, variable.Export()); err != nil {
			return fmt.Errorf("printing the environment: %w", err)
		}
	}
	return nil
}

func parseSelection(only, ports string) (services.Selection, error) {
	var selection services.Selection
	if only != "" {
		selection.Only = strings.Split(only, ",")
	}
	if ports == "" {
		return selection, nil
	}
	selection.Ports = map[string]int{}
	for pair := range strings.SplitSeq(ports, ",") {
		name, text, _ := strings.Cut(pair, "=")
		port, err := strconv.ParseUint(text, 10, 16)
		if err != nil || port == 0 {
			return selection, fmt.Errorf("reading the port %q: want name=number, separated by commas", pair)
		}
		selection.Ports[name] = int(port)
	}
	return selection, nil
}
