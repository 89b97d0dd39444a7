package trial

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Config is the configuration of a relay with one route to Kafka. Its zero
// fields are left to the relay's defaults.
type Config struct {
	URI, Database string
	Brokers       []string
	// Topic is the template of the sink. Defaults to the event's type.
	Topic string
	// Route is the name of the route and its cursor. Defaults to "kafka".
	Route string
	// Lease is that of the cursor.
	Lease time.Duration
	// Store, Sink, RouteOptions, Relay and Admin are further lines of their
	// sections, such as "collection: events".
	Store, Sink, RouteOptions, Relay, Admin []string
}

// Write writes the configuration to a file in dir and returns its path. The
// file's name is the route's.
func (c Config) Write(dir string) (string, error) {
	if c.Topic == "" {
		c.Topic = "{{ .Type }}"
	}
	if c.Route == "" {
		c.Route = "kafka"
	}
	if c.Lease > 0 {
		c.Relay = append([]string{"cursor_lease: " + c.Lease.String()}, c.Relay...)
	}
	var b strings.Builder
	section := func(indent string, lines ...string) {
		for _, line := range lines {
			fmt.Fprintf(&b, "%s%s\n", indent, line)
		}
	}
	section("", "store:", "  mongodb:")
	section("    ", fmt.Sprintf("uri: %q", c.URI), fmt.Sprintf("database: %q", c.Database))
	section("    ", c.Store...)
	section("", "sinks:", "  events:")
	section("    ", "type: kafka", fmt.Sprintf("brokers: [%s]", quoted(c.Brokers)), fmt.Sprintf("topic: %q", c.Topic))
	section("    ", c.Sink...)
	section("", "routes:", fmt.Sprintf("  - name: %q", c.Route))
	section("    ", "sink: events")
	section("    ", c.RouteOptions...)
	if len(c.Relay) > 0 {
		section("", "relay:")
		section("  ", c.Relay...)
	}
	if len(c.Admin) > 0 {
		section("", "admin:")
		section("  ", c.Admin...)
	}
	path := filepath.Join(dir, c.Route+".yaml")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		return "", fmt.Errorf("writing the relay's configuration: %w", err)
	}
	return path, nil
}

func quoted(list []string) string {
	q := make([]string, len(list))
	for i, s := range list {
		q[i] = fmt.Sprintf("%q", s)
	}
	return strings.Join(q, ", ")
}
