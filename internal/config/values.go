package config

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Duration is a length of time, never negative: 500ms, 30s, 1h30m, 7d.
type Duration time.Duration

var daysPattern = regexp.MustCompile(`^([0-9]{1,6})d(.*)$`)

// UnmarshalText reads what time.ParseDuration reads, with days before it.
func (d *Duration) UnmarshalText(text []byte) error {
	s, days := string(text), time.Duration(0)
	if m := daysPattern.FindStringSubmatch(s); m != nil {
		n, _ := strconv.Atoi(m[1])
		if n > 36500 {
			return errors.New("must be at most 100 years")
		}
		days, s = time.Duration(n)*24*time.Hour, m[2]
	}
	var rest time.Duration
	if s != "" || days == 0 {
		var err error
		if rest, err = time.ParseDuration(s); err != nil {
			return errors.New("must be a length of time with its unit, such as 500ms, 30s, 15m, 24h or 7d")
		}
	}
	if rest < 0 || rest > math.MaxInt64-days {
		return errors.New("must not be negative, and at most 100 years")
	}
	*d = Duration(days + rest)
	return nil
}

func (d Duration) String() string {
	t := time.Duration(d)
	days, t := t/(24*time.Hour), t%(24*time.Hour)
	if days == 0 {
		return trimZeros(t.String())
	}
	if t == 0 {
		return fmt.Sprintf("%dd", days)
	}
	return fmt.Sprintf("%dd%s", days, trimZeros(t.String()))
}

// trimZeros turns 1h0m0s into 1h and 15m0s into 15m.
func trimZeros(s string) string {
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// MarshalText is String.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// Size is a number of bytes: 500, 64KiB, 8MiB, 1GiB, also KB, MB and GB for
// powers of ten.
type Size int

var sizePattern = regexp.MustCompile(`^([0-9]{1,18}) ?([A-Za-z]*)$`)

var sizeUnits = map[string]int64{
	"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9,
}

// UnmarshalText reads a whole number and a unit.
func (s *Size) UnmarshalText(text []byte) error {
	m := sizePattern.FindSubmatch(text)
	if m == nil {
		return errors.New("must be a number of bytes, such as 1048576, 64KiB or 8MiB")
	}
	unit, known := sizeUnits[string(m[2])]
	if !known {
		return errors.New("has an unknown unit: B, KiB, MiB, GiB, KB, MB and GB are known")
	}
	n, err := strconv.ParseInt(string(m[1]), 10, 64)
	if err != nil || n > math.MaxInt32/unit {
		return errors.New("must be less than 2GiB")
	}
	*s = Size(n * unit)
	return nil
}

func (s Size) String() string {
	for _, u := range []string{"GiB", "MiB", "KiB"} {
		if n := sizeUnits[u]; s > 0 && int64(s)%n == 0 {
			return fmt.Sprintf("%d%s", int64(s)/n, u)
		}
	}
	return strconv.Itoa(int(s))
}

// MarshalText is String.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Start is where a new cursor begins; the zero value is the beginning.
type Start struct {
	Now bool
	At  time.Time
}

// UnmarshalText reads beginning, now or an RFC 3339 time.
func (s *Start) UnmarshalText(text []byte) error {
	switch string(text) {
	case "beginning":
		*s = Start{}
	case "now":
		*s = Start{Now: true}
	default:
		t, err := time.Parse(time.RFC3339Nano, string(text))
		if err != nil {
			return errors.New("must be beginning, now or a time such as 2026-01-31T08:00:00Z")
		}
		*s = Start{At: t}
	}
	return nil
}

// MarshalText is the inverse of UnmarshalText.
func (s Start) MarshalText() ([]byte, error) {
	switch {
	case s.Now:
		return []byte("now"), nil
	case s.At.IsZero():
		return []byte("beginning"), nil
	}
	return []byte(s.At.Format(time.RFC3339Nano)), nil
}

// Hidden is what is shown in place of a secret.
const Hidden = "(hidden)"

// Secret is a value that no formatting shows. Reveal returns it.
type Secret string

// UnmarshalText takes the text as it is.
func (s *Secret) UnmarshalText(text []byte) error {
	*s = Secret(text)
	return nil
}

// Reveal returns the secret, for the call that needs it.
func (s Secret) Reveal() string { return string(s) }

// String hides the secret, as all its siblings do.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return Hidden
}

// GoString is String.
func (s Secret) GoString() string { return strconv.Quote(s.String()) }

// MarshalText is String.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue is String.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// URI is an address that may hold a password, which no formatting shows.
type URI string

// UnmarshalText takes the text as it is.
func (u *URI) UnmarshalText(text []byte) error {
	*u = URI(text)
	return nil
}

// Reveal returns the address with its password, for the call that needs it.
func (u URI) Reveal() string { return string(u) }

// String returns the address without user, password and secret parameters.
func (u URI) String() string { shown, _ := hideURI(string(u)); return shown }

// GoString is String.
func (u URI) GoString() string { return strconv.Quote(u.String()) }

// MarshalText is String.
func (u URI) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// LogValue is String.
func (u URI) LogValue() slog.Value { return slog.StringValue(u.String()) }
