package main

import (
	"github.com/spf13/cobra"
)

func (p *program) configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print the configuration with its defaults, secrets hidden",
		Long: "Config checks the configuration and prints all of it, defaults included, with secrets hidden.\n" +
			"It connects to nothing.",
		Args: cobra.NoArgs,
	}
	path := configFlag(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		file, err := p.load(*path)
		if err != nil {
			return err
		}
		text, err := file.YAML()
		if err != nil {
			return err
		}
		_, err = p.stdout.Write(text)
		return err
	}
	return cmd
}
