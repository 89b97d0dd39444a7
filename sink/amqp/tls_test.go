package amqp

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"strings"
	"testing"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/services"
	"github.com/gooutbox/outbox/internal/servicetest"
)

func TestTLSByPasswordAndByCertificate(t *testing.T) {
	t.Parallel()
	broker := servicetest.StartRabbitMQ(t, services.RabbitMQConfig{TLS: true})
	q := newQueue(t, broker.PlainURL(), nil)
	roots := x509.NewCertPool()
	authority, err := os.ReadFile(broker.CAFile())
	if err != nil || !roots.AppendCertsFromPEM(authority) {
		t.Fatalf("the authority's file: %v", err)
	}
	pair, err := tls.LoadX509KeyPair(broker.ClientFile(), broker.ClientFile())
	if err != nil {
		t.Fatal(err)
	}
	trusting := &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	certified := trusting.Clone()
	certified.Certificates = []tls.Certificate{pair}
	nobody := "amqps://nobody:c4n4ry@" + broker.Address() + "/"
	for _, login := range []struct {
		name     string
		url      string
		tls      *tls.Config
		external bool
		problem  string
	}{
		{"password", broker.URL(), trusting, false, ""},
		{"certificate", nobody, certified, true, ""},
		{"no certificate", nobody, trusting, true, "not let in"},
		{"wrong password", nobody, certified, false, "not let in"},
		{"unknown authority", broker.URL(), nil, false, "securing the connection"},
		{"port with TLS, address without", strings.Replace(broker.URL(), "amqps", "amqp", 1), nil, false, "opening a session"},
	} {
		t.Run(login.name, func(t *testing.T) {
			s := newSink(t, Config{URLs: []string{login.url}, Exchange: q.name, TLS: login.tls, External: login.external})
			err := s.Check(t.Context())
			if (err == nil) != (login.problem == "") || err != nil && !strings.Contains(err.Error(), login.problem) {
				t.Errorf("%v, want %q", err, login.problem)
			}
			if err != nil && (strings.Contains(err.Error(), "c4n4ry") || strings.Contains(err.Error(), services.Password)) {
				t.Errorf("the password stands in %v", err)
			}
			want := core.Delivered
			if login.problem != "" {
				want = core.Unavailable
			}
			outcomes(t, s.Deliver(t.Context(), []core.Lease{lease(login.name, "key")}), want)
		})
	}
	if got := q.ids(t); len(got) != 2 {
		t.Errorf("%v arrived", got)
	}
}
