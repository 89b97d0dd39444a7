package main

import (
	"io"
	"log/slog"
	"time"

	"github.com/gooutbox/outbox/internal/config"
)

// newLogger writes to w what cfg asks for, without the secrets that the
// redactor knows, whoever logs them.
func newLogger(w io.Writer, cfg config.Log, redactor config.Redactor) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(cfg.Level)) // one of its names, by the configuration's check
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: readable}
	if cfg.Format == "json" {
		return slog.New(slog.NewJSONHandler(redactor.Writer(w), options))
	}
	return slog.New(slog.NewTextHandler(redactor.Writer(w), options))
}

// readable writes durations as "1.02s": JSON would have them as a number of
// nanoseconds. Missing rights are said in short.
func readable(_ []string, a slog.Attr) slog.Attr {
	switch a.Value.Kind() {
	case slog.KindDuration:
	case slog.KindString:
		return slog.String(a.Key, shortened(a.Value.String()))
	case slog.KindAny:
		if err, ok := a.Value.Any().(error); ok {
			return slog.String(a.Key, shortened(err.Error()))
		}
		return a
	default:
		return a
	}
	d := a.Value.Duration()
	switch size := d.Abs(); {
	case size >= time.Second:
		d = d.Round(10 * time.Millisecond)
	case size >= time.Millisecond:
		d = d.Round(10 * time.Microsecond)
	}
	return slog.String(a.Key, d.String())
}
