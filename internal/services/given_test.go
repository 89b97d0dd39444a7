package services_test

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/gooutbox/outbox/internal/services"
)

// The variables of a shell outlive the servers that they name.
func TestAGivenServerThatDoesNotAnswerIsNamed(t *testing.T) {
	var told bytes.Buffer
	services.Progress = &told
	t.Cleanup(func() { services.Progress = io.Discard })
	t.Setenv("MONGODB_URL", "mongodb://me:c4n4ry@127.0.0.1:1/?directConnection=true&serverSelectionTimeoutMS=100")
	t.Setenv("KAFKA_BROKERS", "127.0.0.1:1")
	for name, use := range map[string]func(services.Selection) error{
		"up": func(s services.Selection) error {
			_, err := services.Up(t.Context(), t.TempDir(), s)
			return err
		},
		"run": func(s services.Selection) error {
			_, err := services.Run(t.Context(), s, []string{"true"})
			return err
		},
	} {
		told.Reset()
		err := use(services.Selection{Only: []string{"mongodb", "kafka"}})
		if err == nil {
			t.Fatalf("%s: no error", name)
		}
		for _, variable := range []string{"MONGODB_URL", "KAFKA_BROKERS"} {
			if !strings.Contains(err.Error(), "unset "+variable) {
				t.Errorf("%s: the error doesn't name %s: %v", name, variable, err)
			}
			if !strings.Contains(told.String(), "using "+variable+" from the environment instead of starting one\n") {
				t.Errorf("%s: told %q", name, told.String())
			}
		}
		if strings.Contains(err.Error()+told.String(), "c4n4ry") {
			t.Errorf("%s: the password shows: %v\n%s", name, err, told.String())
		}
	}
}
