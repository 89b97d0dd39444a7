package kafka

import (
	"crypto/tls"
	"strings"
	"testing"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/services"
	"github.com/gooutbox/outbox/internal/servicetest"
)

// A port without TLS or SASL says nothing of use by itself. The ports that have
// them are in TestDeliversOverTLSWithEachMechanism.
func TestAPlainPortIsToldFromAnOutage(t *testing.T) {
	t.Parallel()
	broker := servicetest.Kafka(t)
	topic := servicetest.Topic(t, 1)
	user := &SASL{ScramSHA512, services.User, services.Password}
	for _, c := range []struct {
		name string
		tls  *tls.Config
		sasl *SASL
		says string
	}{
		{"SASL", nil, user, "a port without SASL"},
		{"plain SASL", nil, &SASL{Plain, services.User, services.Password}, "a port without SASL"},
		{"TLS", &tls.Config{}, nil, "a port without TLS"},
		{"both", &tls.Config{}, user, "a port without TLS"},
	} {
		s := open(t, Config{Brokers: broker, Topic: topic, TLS: c.tls, SASL: c.sasl, RequestTimeout: 6 * time.Second})
		r := s.Deliver(t.Context(), []core.Lease{lease("1", "a")})[0]
		if r.Outcome != core.Unavailable || !strings.Contains(r.Err.Error(), c.says) {
			t.Errorf("%s: %v (%v), want unavailable and %q", c.name, r.Outcome, r.Err, c.says)
		}
		if err := s.Check(t.Context()); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: Check says %v, want %q", c.name, err, c.says)
		}
	}
	s := open(t, Config{Brokers: []string{"127.0.0.1:1"}, Topic: topic})
	if r := s.Deliver(t.Context(), []core.Lease{lease("1", "a")})[0]; strings.Contains(r.Err.Error(), "SASL") || strings.Contains(r.Err.Error(), "TLS") {
		t.Errorf("nobody listens, and the reason is %v", r.Err)
	}
}
