package main

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func (p *program) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version, the revision it was built from and the Go version",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			info, ok := debug.ReadBuildInfo()
			if !ok {
				info = &debug.BuildInfo{}
			}
			_, err := fmt.Fprintln(p.stdout, "outbox "+versionLine(info))
			return err
		},
	}
}

// versionLine is what is known of a build: "v1.2.3 (revision 0123456789ab,
// go1.26.0)".
func versionLine(info *debug.BuildInfo) string {
	version := info.Main.Version
	if version == "" {
		version = "(devel)"
	}
	var revision, modified string
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			revision = s.Value
		case "vcs.modified":
			if s.Value == "true" {
				modified = ", modified"
			}
		}
	}
	details := info.GoVersion
	if revision != "" {
		details = fmt.Sprintf("revision %.12s%s, %s", revision, modified, info.GoVersion)
	}
	return fmt.Sprintf("%s (%s)", version, details)
}
