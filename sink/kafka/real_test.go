package kafka

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/services"
	"github.com/gooutbox/outbox/internal/servicetest"
	"github.com/gooutbox/outbox/internal/wire"
)

// full is an event with every field set.
func full() core.Lease {
	l := lease("0190e6b5-7c1e-7000-8000-000000000001", "order-Größe-1")
	l.Redriven = true
	l.Event.Aggregate, l.Event.Tenant, l.Event.CorrelationID = "order", "acme", "checkout-7"
	l.Event.Version, l.Event.AggregateVersion = 2, 9
	l.Event.OccurredAt = time.Date(2026, 3, 4, 5, 6, 7, 89_000_000, time.FixedZone("", 3600))
	l.Event.Headers = map[string]string{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "X-Shop": "Zürich"}
	return l
}

func TestEachFormArrives(t *testing.T) {
	t.Parallel()
	for form, want := range map[Form]map[string]string{
		CloudEvents: {
			"ce_specversion": "1.0", "ce_id": "0190e6b5-7c1e-7000-8000-000000000001", "ce_source": "/outbox/shop/outbox",
			"ce_type": "order.placed", "ce_subject": "order-Größe-1", "ce_time": "2026-03-04T04:06:07.089Z",
			"ce_partitionkey": "order-Größe-1", "ce_correlationid": "checkout-7", "ce_outboxtenant": "acme",
			"ce_outboxaggregate": "order", "ce_outboxversion": "2", "ce_outboxaggversion": "9", "ce_outboxroute": "kafka",
			"ce_outboxfence": "000000000000002a", "ce_outboxredrive": "true", "content-type": "application/json",
			"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "X-Shop": "Zürich",
		},
		Debezium: {
			"id": "0190e6b5-7c1e-7000-8000-000000000001", "eventType": "order.placed", "outboxroute": "kafka",
			"outboxfence": "000000000000002a", "outboxredrive": "true",
			"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "X-Shop": "Zürich",
		},
		Bare: {
			"outboxid": "0190e6b5-7c1e-7000-8000-000000000001", "outboxtype": "order.placed", "outboxroute": "kafka",
			"outboxfence": "000000000000002a", "outboxredrive": "true", "content-type": "application/json",
			"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "X-Shop": "Zürich",
		},
	} {
		t.Run(string(form), func(t *testing.T) {
			t.Parallel()
			topic := servicetest.Topic(t, 12)
			s := open(t, Config{Brokers: servicetest.Kafka(t), Topic: topic, Form: form})
			l := full()
			if r := s.Deliver(t.Context(), []core.Lease{l})[0]; r.Outcome != core.Delivered {
				t.Fatalf("%v (%v)", r.Outcome, r.Err)
			}
			all := readAll(t, servicetest.Kafka(t), topic)
			if len(all) != 1 {
				t.Fatalf("%d messages", len(all))
			}
			got := map[string]string{}
			for _, h := range all[0].Headers {
				got[h.Key] = string(h.Value)
			}
			if !maps.Equal(got, want) {
				t.Errorf("headers are\n%v, want\n%v", got, want)
			}
			if m := all[0]; string(m.Key) != l.Event.AggregateID || !bytes.Equal(m.Value, l.Event.Payload) || m.Partition != int(partitionOf(l.Event.AggregateID, 12)) {
				t.Errorf("key %q, value %q, partition %d", m.Key, m.Value, m.Partition)
			}
			if age := time.Since(all[0].Time); age < -time.Minute || age > time.Minute {
				t.Errorf("the record's time is %v ago: retention counts by it", age)
			}
		})
	}
}

func TestEachCompressionArrives(t *testing.T) {
	t.Parallel()
	topic := servicetest.Topic(t, 1)
	var want []string
	for c := range compressions {
		s := open(t, Config{Brokers: servicetest.Kafka(t), Topic: topic, Compression: c, Acks: AcksLeader})
		l := lease(string(c), "key")
		l.Event.Payload = []byte(strings.Repeat(string(c), 1000))
		want = append(want, string(l.Event.Payload))
		if r := s.Deliver(t.Context(), []core.Lease{l})[0]; r.Outcome != core.Delivered {
			t.Fatalf("%s: %v (%v)", c, r.Outcome, r.Err)
		}
	}
	var got []string
	for _, m := range readAll(t, servicetest.Kafka(t), topic) {
		got = append(got, string(m.Value))
	}
	if !slices.Equal(got, want) {
		t.Error("payloads arrived otherwise than they were sent")
	}
}

// A compressed event may be larger than the limit before compression.
func TestCompressedSizeCounts(t *testing.T) {
	t.Parallel()
	topic := servicetest.Topic(t, 1, "max.message.bytes=10000")
	l := lease("big", "key")
	l.Event.Payload = []byte(strings.Repeat("x", 50_000))
	for compression, want := range map[Compression]core.Outcome{CompressionNone: core.Rejected, CompressionZstd: core.Delivered} {
		s := open(t, Config{Brokers: servicetest.Kafka(t), Topic: topic, Compression: compression})
		if r := s.Deliver(t.Context(), []core.Lease{l})[0]; r.Outcome != want {
			t.Errorf("%s: %v (%v), want %v", compression, r.Outcome, r.Err, want)
		}
	}
}

// A raised limit holds for the next event, without a restart.
func TestRaisedLimitIsSeen(t *testing.T) {
	t.Parallel()
	topic := servicetest.Topic(t, 1, "max.message.bytes=2000")
	s := open(t, Config{Brokers: servicetest.Kafka(t), Topic: topic})
	l := lease("big", "key")
	l.Event.Payload = make([]byte, 5000)
	r := s.Deliver(t.Context(), []core.Lease{l})[0]
	if r.Outcome != core.Rejected || !strings.Contains(r.Err.Error(), "limit 2000") {
		t.Fatalf("%v (%v), want rejected, with the limit", r.Outcome, r.Err)
	}
	alter(t, servicetest.Kafka(t), topic, "max.message.bytes", "9000")
	for end := time.Now().Add(20 * time.Second); ; { // the broker itself learns it a little later
		r := s.Deliver(t.Context(), []core.Lease{l})[0]
		if r.Outcome == core.Delivered {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("after the limit was raised: %v (%v)", r.Outcome, r.Err)
		}
	}
}

func TestTopicIsCreatedWhenAllowed(t *testing.T) {
	t.Parallel()
	broker := servicetest.Kafka(t)
	l := lease("1", "a")
	l.Event.Type = servicetest.Name(t)
	s := open(t, Config{Brokers: broker})
	r := s.Deliver(t.Context(), []core.Lease{l})[0]
	if r.Outcome != core.Refused || !strings.Contains(r.Err.Error(), l.Event.Type) {
		t.Errorf("not allowed: %v (%v), want refused with the topic's name", r.Outcome, r.Err)
	}
	s = open(t, Config{Brokers: broker, CreateTopics: true})
	if r := s.Deliver(t.Context(), []core.Lease{l})[0]; r.Outcome != core.Delivered {
		t.Errorf("allowed: %v (%v)", r.Outcome, r.Err)
	}
	if err := services.DeleteTopic(t.Context(), broker, l.Event.Type); err != nil {
		t.Error(err)
	}
}

func TestCheckTellsWhetherItWouldWork(t *testing.T) {
	t.Parallel()
	broker := servicetest.Kafka(t)
	topic := servicetest.Topic(t, 1)
	for _, c := range []struct {
		name, topic string
		ok          bool
	}{
		{"a topic that is there", topic, true},
		{"a topic that isn't", topic + "-not", false},
		{"a topic by event", DefaultTopic, true},
	} {
		err := open(t, Config{Brokers: broker, Topic: c.topic}).Check(t.Context())
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
		if err != nil && !strings.Contains(err.Error(), c.topic) {
			t.Errorf("%s: %v doesn't name it", c.name, err)
		}
	}
}

func TestDeliversOverTLSWithEachMechanism(t *testing.T) {
	t.Parallel()
	broker := servicetest.StartKafka(t, services.KafkaConfig{TLS: true, SASL: true, HeapMB: 256})
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
	delivered := 0
	for _, c := range []struct {
		name string
		tls  *tls.Config
		sasl *SASL
		want core.Outcome
		says string
	}{
		{"plain", trusting, &SASL{Plain, services.User, services.Password}, core.Delivered, ""},
		{"scram-sha-256", trusting, &SASL{ScramSHA256, services.User, services.Password}, core.Delivered, ""},
		{"scram-sha-512", trusting, &SASL{ScramSHA512, services.User, services.Password}, core.Delivered, ""},
		{"wrong password", trusting, &SASL{ScramSHA512, services.User, "wrong-secret"}, core.Unavailable, "check username and password"},
		{"wrong plain password", trusting, &SASL{Plain, services.User, "wrong-secret"}, core.Unavailable, "check username and password"},
		{"no user", trusting, nil, core.Unavailable, "does it want SASL"},
		{"unknown authority", &tls.Config{}, &SASL{ScramSHA512, services.User, services.Password}, core.Unavailable, "certificate"},
		{"no TLS", nil, &SASL{ScramSHA512, services.User, services.Password}, core.Unavailable, "does it want TLS"},
		{"neither", nil, nil, core.Unavailable, "does it want TLS"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := open(t, Config{Brokers: broker.Brokers(), Topic: topic, TLS: c.tls, SASL: c.sasl, RequestTimeout: 6 * time.Second})
			r := s.Deliver(t.Context(), []core.Lease{lease("1", "a")})[0]
			if r.Outcome != c.want {
				t.Errorf("%v (%v), want %v", r.Outcome, r.Err, c.want)
			}
			if r.Outcome == core.Delivered {
				delivered++
				return
			}
			if text := fmt.Sprint(r.Err); strings.Contains(text, "wrong-secret") || !strings.Contains(text, c.says) {
				t.Errorf("the reason is %q, want %q in it and no password", text, c.says)
			}
			if err := s.Check(t.Context()); err == nil {
				t.Error("Check finds nothing wrong")
			}
		})
	}
	if got := len(readAll(t, broker.PlainBrokers(), topic)); got != delivered {
		t.Errorf("%d messages are there, %d were confirmed", got, delivered)
	}
}

// Another client reads the same headers, key and payload.
func TestKcatReadsWhatArrived(t *testing.T) {
	t.Parallel()
	topic := servicetest.Topic(t, 1)
	s := open(t, Config{Brokers: servicetest.Kafka(t), Topic: topic})
	if r := s.Deliver(t.Context(), []core.Lease{full()})[0]; r.Outcome != core.Delivered {
		t.Fatalf("%v (%v)", r.Outcome, r.Err)
	}
	out, err := exec.CommandContext(t.Context(), servicetest.Kcat(t), "-b", strings.Join(servicetest.Kafka(t), ","),
		"-C", "-t", topic, "-o", "beginning", "-e", "-q", "-f", "%k|%h|%s").Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	headers, err := wire.NewEncoder(CloudEvents, wire.KafkaPrefix, "").Append(nil, new(full()))
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, h := range headers {
		want = append(want, h.Name+"="+h.Value)
	}
	l := full()
	if got, want := string(out), l.Event.AggregateID+"|"+strings.Join(want, ",")+"|"+string(l.Event.Payload); got != want {
		t.Errorf("kcat reads\n%s, want\n%s", got, want)
	}
}
