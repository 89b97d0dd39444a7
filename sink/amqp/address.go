package amqp

import (
	"errors"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/rabbitmq/amqp091-go"
)

// address is one of Config.URLs, taken apart.
type address struct {
	host, hostPort string
	tls            bool
	vhost          string
	user, password string
}

// parseAddress returns errors that repeat no part of the address, which may be
// a part of the password.
func parseAddress(text string) (address, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return address{}, errors.New("is no address: write amqp://user:password@host:5672/vhost, with user and password percent-encoded")
	case u.Scheme != "amqp" && u.Scheme != "amqps":
		return address{}, errors.New("must begin with amqp:// or amqps://")
	case u.RawQuery != "" || u.Fragment != "":
		return address{}, errors.New("has parameters after the virtual host: use the fields of the configuration")
	case strings.Contains(strings.TrimPrefix(u.EscapedPath(), "/"), "/"):
		return address{}, errors.New("has a virtual host with a slash, which must be written as %2F")
	}
	parsed, err := amqp091.ParseURI(text)
	if err != nil || parsed.Port < 1 || parsed.Port > 65535 {
		return address{}, errors.New("has a port or a host that can't be")
	}
	return address{
		host: parsed.Host, hostPort: net.JoinHostPort(parsed.Host, strconv.Itoa(parsed.Port)),
		tls: parsed.Scheme == "amqps", vhost: parsed.Vhost, user: parsed.Username, password: parsed.Password,
	}, nil
}

// hidden returns addresses without users and passwords.
func hidden(urls []string) []string {
	shown := make([]string, len(urls))
	for i, u := range urls {
		a, err := parseAddress(u)
		if err != nil {
			shown[i] = "(not an address)"
			continue
		}
		shown[i] = a.hostPort
	}
	return shown
}
