package servicetest

import (
	"testing"

	"github.com/gooutbox/outbox/internal/services"
)

// AWSEndpoint returns the URL of the shared emulator of AWS services.
func AWSEndpoint(t testing.TB) string {
	t.Helper()
	return fromEnvironment(t, awsVariable)
}

// StartAWS starts an emulator of this test alone, for tests that freeze or kill
// it. It is gone when the test ends.
func StartAWS(t testing.TB, config services.AWSConfig) *services.AWS {
	t.Helper()
	if !required() && !services.HaveAWS() {
		missing(t, "moto has not been fetched")
	}
	emulator, err := services.StartAWS(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := emulator.Close(); err != nil {
			t.Errorf("closing the AWS emulator: %v", err)
		}
	})
	return emulator
}
