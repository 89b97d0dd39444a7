package services_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"

	"github.com/gooutbox/outbox/internal/services"
	"github.com/gooutbox/outbox/internal/servicetest"
)

func produce(t *testing.T, client *kafka.Client, topic string) error {
	t.Helper()
	return produceValue(t, client, topic, "hello")
}

func produceValue(t *testing.T, client *kafka.Client, topic, value string) error {
	t.Helper()
	answer, err := client.Produce(t.Context(), &kafka.ProduceRequest{
		Topic: topic, Partition: 0, RequiredAcks: kafka.RequireAll,
		Records: kafka.NewRecordReader(kafka.Record{Value: kafka.NewBytes([]byte(value))}),
	})
	if err != nil {
		return fmt.Errorf("producing: %w", err)
	}
	return answer.Error
}

func clientOf(t *testing.T, brokers []string, transport *kafka.Transport) *kafka.Client {
	t.Helper()
	t.Cleanup(transport.CloseIdleConnections)
	return &kafka.Client{Addr: kafka.TCP(brokers...), Timeout: 10 * time.Second, Transport: transport}
}

// end returns how many messages the topic's first partition took.
func end(t *testing.T, broker *services.Kafka, topic string) int64 {
	t.Helper()
	client := clientOf(t, broker.PlainBrokers(), &kafka.Transport{})
	found, err := client.ListOffsets(t.Context(), &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{topic: {kafka.LastOffsetOf(0)}}})
	if err != nil {
		t.Fatal(err)
	}
	return found.Topics[topic][0].LastOffset
}

func TestMessagesOutliveKillAndRestart(t *testing.T) {
	t.Parallel()
	broker := servicetest.StartKafka(t, services.KafkaConfig{Properties: map[string]string{"message.max.bytes": "100"}})
	topic := servicetest.TopicOn(t, broker.PlainBrokers(), 2)
	err := produceValue(t, clientOf(t, broker.Brokers(), &kafka.Transport{}), topic, strings.Repeat("x", 100))
	if !errors.Is(err, kafka.MessageSizeTooLarge) {
		t.Fatalf("producing more than message.max.bytes: %v, want %v", err, kafka.MessageSizeTooLarge)
	}
	if err := produce(t, clientOf(t, broker.Brokers(), &kafka.Transport{}), topic); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	broker.Kill()
	if err := broker.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := produce(t, clientOf(t, broker.Brokers(), &kafka.Transport{}), topic); err != nil {
		t.Fatal(err)
	}
	t.Logf("kill, start and produce: %v", time.Since(began))
	began = time.Now()
	if err := broker.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := produce(t, clientOf(t, broker.Brokers(), &kafka.Transport{}), topic); err != nil {
		t.Fatal(err)
	}
	t.Logf("stop, start and produce: %v", time.Since(began))
	if got := end(t, broker, topic); got != 3 {
		t.Fatalf("%d messages, want 3", got)
	}
}

func TestClientsLogInByEachMechanismOverTLS(t *testing.T) {
	t.Parallel()
	broker := servicetest.StartKafka(t, services.KafkaConfig{TLS: true, SASL: true})
	topic := servicetest.TopicOn(t, broker.PlainBrokers(), 1)
	authority, err := os.ReadFile(broker.CAFile())
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		t.Fatal("the authority's file holds no certificate")
	}
	trusting := &tls.Config{RootCAs: roots}
	mechanism := func(algorithm scram.Algorithm, password string) sasl.Mechanism {
		made, err := scram.Mechanism(algorithm, services.User, password)
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	for _, login := range []struct {
		name      string
		tls       *tls.Config
		mechanism sasl.Mechanism
		ok        bool
	}{
		{"plain", trusting, plain.Mechanism{Username: services.User, Password: services.Password}, true},
		{"SCRAM-SHA-256", trusting, mechanism(scram.SHA256, services.Password), true},
		{"SCRAM-SHA-512", trusting, mechanism(scram.SHA512, services.Password), true},
		{"wrong password", trusting, mechanism(scram.SHA512, "guess"), false},
		{"no user", trusting, nil, false},
		{"unknown authority", &tls.Config{}, mechanism(scram.SHA512, services.Password), false},
		{"no TLS", nil, mechanism(scram.SHA512, services.Password), false},
	} {
		t.Run(login.name, func(t *testing.T) {
			err := produce(t, clientOf(t, broker.Brokers(), &kafka.Transport{TLS: login.tls, SASL: login.mechanism, DialTimeout: 3 * time.Second}), topic)
			if login.ok != (err == nil) {
				t.Fatalf("producing: %v, want success: %v", err, login.ok)
			}
		})
	}
	if got := end(t, broker, topic); got != 3 {
		t.Fatalf("%d messages, want 3", got)
	}
}

func TestKcatReadsWhatWasWritten(t *testing.T) {
	kcat := servicetest.Kcat(t)
	brokers := servicetest.Kafka(t)
	topic := servicetest.Topic(t, 1)
	if err := produce(t, clientOf(t, brokers, &kafka.Transport{}), topic); err != nil {
		t.Fatal(err)
	}
	text, err := exec.CommandContext(t.Context(), kcat, "-C", "-q", "-e", "-b", strings.Join(brokers, ","), "-t", topic).Output()
	if err != nil {
		t.Fatal(err)
	}
	if string(text) != "hello\n" {
		t.Fatalf("kcat read %q", text)
	}
}
