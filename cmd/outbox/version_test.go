package main

import (
	"runtime/debug"
	"testing"
)

func TestVersionLine(t *testing.T) {
	t.Parallel()
	built := &debug.BuildInfo{GoVersion: "go1.26.0", Main: debug.Module{Version: "v1.2.3"}, Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "0123456789abcdef0123456789abcdef01234567"}, {Key: "vcs.modified", Value: "true"},
	}}
	if got, want := versionLine(built), "v1.2.3 (revision 0123456789ab, modified, go1.26.0)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := versionLine(&debug.BuildInfo{GoVersion: "go1.26.0"}), "(devel) (go1.26.0)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
