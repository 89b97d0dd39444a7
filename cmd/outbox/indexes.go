package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"go.opentelemetry.io/otel/metric/noop"
)

func (p *program) indexesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "indexes",
		Short: "Make the collections and indexes that the store needs",
		Long: "Indexes makes what is missing and changes nothing that is there, so that it may be run again and\n" +
			"beside a running relay. It prints one line for each thing.",
		Args: cobra.NoArgs,
	}
	path := configFlag(cmd)
	dryRun := cmd.Flags().Bool("dry-run", false, "only print what would be made")
	validator := cmd.Flags().Bool("validator", false, "also make the server refuse events and jobs that could not be delivered; run outbox lint first")
	timeout := cmd.Flags().Duration("timeout", 10*time.Minute, "give up after this `time`; building an index on a large collection takes a while")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		file, err := p.load(*path)
		if err != nil {
			return err
		}
		ctx, cancel := withTimeout(cmd.Context(), *timeout)
		defer cancel()
		store, err := openStore(ctx, file, parts{logger: newLogger(p.stderr, file.Log, p.redactor), meters: noop.NewMeterProvider()})
		if err != nil {
			return err
		}
		lines, err := store.ensureIndexes(ctx, *dryRun)
		if err == nil && *validator {
			var more []string
			more, err = store.ensureValidators(ctx, *dryRun)
			lines = append(lines, more...)
		}
		if keeper, ok := store.(mailKeeper); ok && err == nil && keepsMails(file) {
			var more []string
			more, err = keeper.ensureMailIndexes(ctx, *dryRun)
			lines = append(lines, more...)
		}
		for _, line := range lines {
			fmt.Fprintln(p.stdout, line)
		}
		if closeErr := closeStore(store); err == nil {
			err = closeErr
		}
		return err
	}
	return cmd
}
