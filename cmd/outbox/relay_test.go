package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/servicetest"
	mongostore "github.com/gooutbox/outbox/store/mongo"
)

// relayConfigFile is a configuration of one route from a database to Kafka.
func relayConfigFile(t *testing.T, uri, database, broker, topic string, more ...string) string {
	t.Helper()
	return configFile(t, fmt.Sprintf(`store:
  mongodb: {uri: %q, database: %q}
sinks:
  events: {type: kafka, brokers: [%q], topic: %q}
routes:
  - {name: kafka, sink: events}
admin: {listen: "127.0.0.1:0"}
`, uri, database, broker, topic)+strings.Join(more, "\n"))
}

// appendEvents writes events, each of a key of its own, in a new outbox.
func appendEvents(t *testing.T, db *mongo.Database, n int) {
	t.Helper()
	s, err := mongostore.New(db, mongostore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.EnsureIndexes(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		event := core.Event{AggregateID: fmt.Sprint(i), Type: "order.placed", Payload: []byte("{}")}
		if err := s.InTransaction(t.Context(), func(ctx context.Context) error { return s.Append(ctx, event) }); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRelayDeliversUntilASignalAndTellsHowItGoes(t *testing.T) {
	t.Parallel()
	db, broker, topic := servicetest.Database(t), servicetest.Kafka(t)[0], servicetest.Topic(t, 1)
	appendEvents(t, db, 3)
	p := start(t, "relay", "-c", relayConfigFile(t, servicetest.MongoURL(t), db.Name(), broker, topic))
	admin := p.admin()
	eventually(t, "three deliveries", func() bool {
		_, page := get(t, admin+"/metrics")
		return strings.Contains(page, "outbox_relay_delivered_total{") && strings.Contains(page, "} 3\n")
	})
	if status, body := get(t, admin+"/readyz"); status != http.StatusOK {
		t.Errorf("/readyz: %d %s", status, body)
	}
	p.signal(syscall.SIGTERM)
	if status := p.status(); status != exitOK {
		t.Errorf("status %d", status)
	}
	if strings.Contains(p.log(), "level=WARN") || !strings.Contains(p.log(), "relay stopped") {
		t.Errorf("log:\n%s", p.log())
	}
	if conn, err := net.Dial("tcp", strings.TrimPrefix(admin, "http://")); err == nil {
		_ = conn.Close()
		t.Error("the admin listener outlived the relay")
	}
}

// TestASecondSignalEndsTheRelayAtOnce lets a delivery hang at a broker that
// takes connections and never answers.
func TestASecondSignalEndsTheRelayAtOnce(t *testing.T) {
	t.Parallel()
	db := servicetest.Database(t)
	appendEvents(t, db, 1)
	broker, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer closeIt(broker)
	p := start(t, "relay", "-c", relayConfigFile(t, servicetest.MongoURL(t), db.Name(), broker.Addr().String(), "t"))
	conn, err := broker.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer closeIt(conn)
	p.signal(syscall.SIGINT)
	p.await("relay stopping")
	eventually(t, "the end", func() bool { // a signal right after the first counts as the same
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		return p.ended()
	})
	if status := p.status(); status != exitAtOnce {
		t.Errorf("status %d, log:\n%s", status, p.log())
	}
}

func TestRelayWaitsForMongoDB(t *testing.T) {
	t.Parallel()
	db, broker, topic := servicetest.Database(t), servicetest.Kafka(t)[0], servicetest.Topic(t, 1)
	appendEvents(t, db, 1)
	address := freeAddress(t)
	uri := "mongodb://" + address + "/?directConnection=true&serverSelectionTimeoutMS=3000"
	p := start(t, "relay", "-c", relayConfigFile(t, uri, db.Name(), broker, topic))
	admin := p.admin()
	p.await("level=WARN")
	eventually(t, "the reason", func() bool {
		status, body := get(t, admin+"/readyz")
		return status == http.StatusServiceUnavailable && strings.Contains(body, "route kafka: the store has failed for")
	})
	forward(t, address, hostOf(t, servicetest.MongoURL(t)))
	eventually(t, "readiness", func() bool {
		status, _ := get(t, admin+"/readyz")
		return status == http.StatusOK
	})
	eventually(t, "the delivery", func() bool {
		_, page := get(t, admin+"/metrics")
		return strings.Contains(page, "outbox_relay_delivered_total{") && strings.Contains(page, "} 1\n")
	})
	p.signal(syscall.SIGTERM)
	// Once for the route, and at most once for the queue.
	if status := p.status(); status != exitOK || strings.Count(p.log(), "the store fails") != 1 || strings.Count(p.log(), "level=WARN") > 2 {
		t.Errorf("status %d, log:\n%s", status, p.log())
	}
}

func TestARelayStoppedWhileItWaitsSaysSoInOrder(t *testing.T) {
	t.Parallel()
	uri := "mongodb://" + freeAddress(t) + "/?directConnection=true&serverSelectionTimeoutMS=200"
	p := start(t, "relay", "-c", relayConfigFile(t, uri, "shop", freeAddress(t), "t"))
	if line := p.await("the store doesn't answer yet"); !strings.Contains(line, "outbox check") {
		t.Errorf("no hint in %s", line)
	}
	p.signal(syscall.SIGTERM)
	status, log := p.status(), p.log()
	stopping, stopped := strings.Index(log, "relay stopping"), strings.Index(log, "relay stopped")
	if status != exitOK || stopping < 0 || stopped < stopping {
		t.Errorf("status %d, log:\n%s", status, log)
	}
}

// TestASignalDuringTheStartEndsTheRelayInOrder lets the relay begin with a
// configuration that comes through a pipe, so that the signal is there first.
func TestASignalDuringTheStartEndsTheRelayInOrder(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "outbox.yaml")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, "relay", "-c", pipe)
	config, err := os.OpenFile(pipe, os.O_WRONLY, 0) // waits until it is read
	if err != nil {
		t.Fatal(err)
	}
	p.signal(syscall.SIGTERM)
	if _, err := config.WriteString(least); err != nil {
		t.Error(err)
	}
	closeIt(config)
	if status := p.status(); status != exitOK || !strings.Contains(p.log(), "relay stopped") {
		t.Errorf("status %d, log:\n%s", status, p.log())
	}
}

// TestAStandbySaysWhoHoldsTheCursor says so once, however often it tries.
func TestAStandbySaysWhoHoldsTheCursor(t *testing.T) {
	t.Parallel()
	o := newOperated(t)
	o.acquire()
	p := start(t, "relay", "-c", relayConfigFile(t, servicetest.MongoURL(t), o.db.Name(), freeAddress(t), "t", "relay: {cursor_lease: 100ms}"))
	if line := p.await("standing by"); !strings.Contains(line, "held_by=host-1/relay") {
		t.Errorf("log: %s", line)
	}
	p.signal(syscall.SIGTERM)
	if status := p.status(); status != exitOK || strings.Count(p.log(), "standing by") != 1 {
		t.Errorf("status %d, log:\n%s", status, p.log())
	}
}

func closeIt(c io.Closer) { _ = c.Close() }

// freeAddress is one at which nothing listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer closeIt(l)
	return l.Addr().String()
}

func hostOf(t *testing.T, uri string) string {
	t.Helper()
	u, err := url.Parse(uri)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// forward makes connections to one address reach another.
func forward(t *testing.T, from, to string) {
	t.Helper()
	l, err := net.Listen("tcp", from)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				_ = in.Close()
				continue
			}
			for _, pair := range [][2]net.Conn{{in, out}, {out, in}} {
				go func() {
					_, _ = io.Copy(pair[0], pair[1])
					_ = pair[0].Close()
				}()
			}
		}
	}()
}
