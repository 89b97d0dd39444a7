package main

import (
	"fmt"
	"net/url"
	"strings"
	"syscall"
	"testing"

	"github.com/gooutbox/outbox/internal/servicetest"
)

const (
	amqpCanary = `c4n4ry/3@ :%é`
	awsCanary  = `c4n4ry+4/AbCdEf&"`
)

// TestNoOutputShowsASecretOfABroker looks at all that a relay and the other
// commands show: while the login at RabbitMQ is refused, while AWS is away, and
// while AWS takes messages.
func TestNoOutputShowsASecretOfABroker(t *testing.T) {
	t.Setenv("AWS_REGION", "eu-west-1")
	t.Setenv("AWS_ACCESS_KEY_ID", "me")
	t.Setenv("AWS_SECRET_ACCESS_KEY", awsCanary)
	t.Setenv("AWS_SESSION_TOKEN", awsCanary)
	broker, err := url.Parse(servicetest.AMQPURL(t))
	if err != nil {
		t.Fatal(err)
	}
	broker.User = url.UserPassword("me", amqpCanary)
	for name, c := range map[string]struct{ sink, shows string }{
		"login refused": {fmt.Sprintf("{type: amqp, urls: [%q]}", broker), "sink events takes"},
		"AWS away":      {fmt.Sprintf("{type: sqs, queue: canary.fifo, endpoint: %q}", "http://"+freeAddress(t)), "sink events takes"},
		"no such queue": {fmt.Sprintf("{type: sqs, queue: canary.fifo, endpoint: %q}", servicetest.AWSEndpoint(t)), ""},
	} {
		t.Run(name, func(t *testing.T) {
			db := servicetest.Database(t)
			appendEvents(t, db, 1)
			config := configFile(t, fmt.Sprintf(`store:
  mongodb: {uri: %q, database: %q}
sinks:
  events: %s
routes:
  - {name: events, sink: events}
admin: {listen: "127.0.0.1:0"}
log: {level: debug}
`, servicetest.MongoURL(t), db.Name(), c.sink))
			for _, command := range []string{"config", "check"} {
				_, stdout, stderr := outbox(t, command, "-c", config)
				noCanary(t, command, stdout+stderr)
			}
			p := start(t, "relay", "-c", config)
			admin := p.admin()
			p.await("holding the cursor")
			ready := ""
			if c.shows != "" {
				eventually(t, c.shows, func() bool {
					_, ready = get(t, admin+"/readyz")
					return strings.Contains(ready, c.shows)
				})
			} else {
				p.await("level=WARN") // the event is refused
			}
			_, metrics := get(t, admin+"/metrics")
			p.signal(syscall.SIGTERM)
			if status := p.status(); status != exitOK {
				t.Errorf("status %d", status)
			}
			noCanary(t, "relay", p.log()+ready+metrics)
		})
	}
}
