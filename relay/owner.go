package relay

import (
	"crypto/rand"
	"fmt"
	"os"

	"github.com/gooutbox/outbox/core"
)

// NewOwner returns a name for this start of the process that no other start
// has: host name, process id and a random part.
func NewOwner() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "unknown"
	}
	rest := fmt.Sprintf("/%d/%s", os.Getpid(), rand.Text())
	return host[:min(len(host), core.MaxNameBytes-len(rest))] + rest
}
