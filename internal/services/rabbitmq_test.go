package services_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/gooutbox/outbox/internal/services"
	"github.com/gooutbox/outbox/internal/servicetest"
)

// dial opens a channel for confirmed messages.
func dial(t *testing.T, url string) (*amqp091.Connection, *amqp091.Channel) {
	t.Helper()
	conn, err := amqp091.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	channel, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if err := channel.Confirm(false); err != nil {
		t.Fatal(err)
	}
	return conn, channel
}

func publish(t *testing.T, url, queue string) {
	t.Helper()
	_, channel := dial(t, url)
	confirm, err := channel.PublishWithDeferredConfirm("", queue, true, false, amqp091.Publishing{DeliveryMode: amqp091.Persistent, Body: []byte("hello")})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if ok, err := confirm.WaitContext(ctx); !ok || err != nil {
		t.Fatalf("confirmed: %v, %v", ok, err)
	}
}

func TestQueuesOutliveKillAndRestart(t *testing.T) {
	t.Parallel()
	broker := servicetest.StartRabbitMQ(t, services.RabbitMQConfig{})
	const queue = "lasting"
	_, channel := dial(t, broker.URL())
	if _, err := channel.QueueDeclare(queue, true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	publish(t, broker.URL(), queue)
	began := time.Now()
	broker.Kill()
	if err := broker.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("kill and start: %v", time.Since(began))
	began = time.Now()
	if err := broker.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("stop and start: %v", time.Since(began))
	publish(t, broker.URL(), queue)
	_, channel = dial(t, broker.PlainURL())
	found, err := channel.QueueDeclarePassive(queue, true, false, false, false, nil)
	if err != nil || found.Messages != 2 {
		t.Errorf("%d messages, %v, want 2", found.Messages, err)
	}
}

func TestClientsOfRabbitMQLogInByTLS(t *testing.T) {
	t.Parallel()
	broker := servicetest.StartRabbitMQ(t, services.RabbitMQConfig{TLS: true})
	roots := x509.NewCertPool()
	authority, err := os.ReadFile(broker.CAFile())
	if err != nil || !roots.AppendCertsFromPEM(authority) {
		t.Fatalf("the authority's file: %v", err)
	}
	pair, err := tls.LoadX509KeyPair(broker.ClientFile(), broker.ClientFile())
	if err != nil {
		t.Fatal(err)
	}
	trusting := &tls.Config{RootCAs: roots}
	nobody := strings.Replace(broker.URL(), services.Password, "guess", 1)
	for _, login := range []struct {
		name string
		url  string
		tls  *tls.Config
		sasl []amqp091.Authentication
		ok   bool
	}{
		{"password", broker.URL(), trusting, nil, true},
		{"certificate", nobody, &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}, []amqp091.Authentication{&amqp091.ExternalAuth{}}, true},
		{"no certificate", nobody, trusting, []amqp091.Authentication{&amqp091.ExternalAuth{}}, false},
		{"wrong password", nobody, trusting, nil, false},
		{"unknown authority", broker.URL(), &tls.Config{}, nil, false},
	} {
		t.Run(login.name, func(t *testing.T) {
			conn, err := amqp091.DialConfig(login.url, amqp091.Config{TLSClientConfig: login.tls, SASL: login.sasl})
			if login.ok != (err == nil) {
				t.Fatalf("connecting: %v, want success: %v", err, login.ok)
			}
			if err == nil {
				_ = conn.Close()
			}
		})
	}
}

func TestControlOfRabbitMQ(t *testing.T) {
	t.Parallel()
	broker := servicetest.StartRabbitMQ(t, services.RabbitMQConfig{})
	if _, err := broker.Ctl(t.Context(), "add_vhost", "shop"); err != nil {
		t.Fatal(err)
	}
	text, err := broker.Ctl(t.Context(), "list_vhosts", "name")
	if err != nil || !strings.Contains(text, "shop") {
		t.Fatalf("%q, %v", text, err)
	}
	if _, err := broker.Ctl(t.Context(), "no_such_command"); err == nil {
		t.Error("no error")
	}
}
