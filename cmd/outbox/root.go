package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/gooutbox/outbox/internal/config"
)

const defaultConfigFile = "outbox.yaml"

func (p *program) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "outbox",
		Short: "Bring events from a transactional outbox to where they belong",
		Long: "Outbox brings events that were committed together with business data to their sinks:\n" +
			"none lost, none invented, those of one key in order.",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetOut(p.stdout)
	root.SetErr(p.stderr)
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &usageError{fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())}
	})
	const run, look, act = "run", "look", "act"
	root.AddGroup(&cobra.Group{ID: run, Title: "Run a relay:"}, &cobra.Group{ID: look, Title: "Look:"}, &cobra.Group{ID: act, Title: "Act:"})
	for group, commands := range map[string][]*cobra.Command{
		run:  {p.relayCommand(), p.checkCommand(), p.indexesCommand(), p.configCommand()},
		look: {p.statsCommand(), p.explainCommand(), p.failedCommand(), p.getCommand(), p.actsCommand(), p.lintCommand()},
		act:  {p.retryCommand(), p.discardCommand(), p.pauseCommand(), p.resumeCommand(), p.forgetCursorCommand(), p.mailCommand()},
		"":   {p.versionCommand()},
	} {
		for _, cmd := range commands {
			cmd.GroupID = group
			root.AddCommand(cmd)
		}
	}
	for _, cmd := range append(root.Commands(), root) {
		refuse := cmd.Args
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := refuse(cmd, args); err != nil {
				return &usageError{fmt.Errorf("%w; outbox --help lists the commands", err)}
			}
			return nil
		}
	}
	return root
}

// configFlag adds --config to a command.
func configFlag(cmd *cobra.Command) *string {
	return cmd.Flags().StringP("config", "c", defaultConfigFile, "configuration `file`, see docs/configuration.md")
}

// load reads the configuration. From then on its secrets are hidden in whatever
// the program prints.
func (p *program) load(path string) (*config.File, error) { return p.loadAs(path, kinds()) }

// loadStore reads no more of it than concerns the store.
func (p *program) loadStore(path string) (*config.File, error) {
	return p.loadAs(path, kinds().StoreOnly())
}

func (p *program) loadAs(path string, kinds config.Kinds) (*config.File, error) {
	file, redactor, err := config.LoadFile(path, kinds, config.Source{Getenv: os.LookupEnv})
	p.redactor = redactor
	if err != nil {
		if path == defaultConfigFile && errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w; name it with --config", err)
		}
		return nil, &usageError{err}
	}
	p.sinks = file.SinkNames()
	return file, nil
}
