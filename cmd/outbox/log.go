package main

import (
	"io"
	"log/slog"

	"github.com/gooutbox/outbox/internal/config"
)

// newLogger writes to w what cfg asks for, without the secrets that the
// redactor knows, whoever logs them.
func newLogger(w io.Writer, cfg config.Log, redactor config.Redactor) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(cfg.Level)) // one of its names, by the configuration's check
	options := &slog.HandlerOptions{Level: level}
	if cfg.Format == "json" {
		return slog.New(slog.NewJSONHandler(redactor.Writer(w), options))
	}
	return slog.New(slog.NewTextHandler(redactor.Writer(w), options))
}
