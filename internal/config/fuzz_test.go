package config_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/gooutbox/outbox/internal/config"
)

// Whatever the file holds, Load ends with a configuration that can be printed
// or with an *Error, and what came from the environment or a file is in none.
func FuzzLoad(f *testing.F) {
	for _, seed := range []string{
		least, "", "a: &a [*a]", "store: &s {db: *s}\nsinks: {a: *s}", "sinks: {a: {type: broker, sasl: {password: ${PASSWORD}}}}",
		least + "log: {level: \"${PASSWORD}\"}\nrelay: {drain: \"${file:/run/secrets/password}\"}\n", "? [a]\n: b", "!!binary a: b",
		"store: {db: {uri: \"${DB_URL}\", database: \"${PASSWORD}\", limit: ${PASSWORD}}}\nroutes: [{start: \"${PASSWORD}\", sink: \"${PASSWORD}\"}]",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "hunter2") {
			t.Skip()
		}
		file, _, err := config.Load([]byte(text), kinds, source())
		if err == nil {
			if _, err := file.YAML(); err != nil {
				t.Fatal(err)
			}
			return
		}
		if _, ok := errors.AsType[*config.Error](err); !ok {
			t.Fatalf("error of type %T", err)
		}
		if strings.Contains(err.Error(), "hunter2") {
			t.Fatalf("a secret is shown: %s", err)
		}
	})
}
