package smtp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"
)

// Security is how a connection is protected.
type Security string

// The ways.
const (
	// StartTLS begins in the clear and turns to TLS before anything else; a
	// server that doesn't offer it is unavailable.
	StartTLS Security = "starttls"
	// TLS is TLS from the first byte (RFC 8314).
	TLS Security = "tls"
	// Clear protects nothing: for servers on this machine, and for tests.
	Clear Security = "none"
)

// Mechanism is a way of authentication.
type Mechanism string

// The mechanisms.
const (
	Plain   Mechanism = "plain"
	Login   Mechanism = "login"
	CRAMMD5 Mechanism = "cram-md5"
	XOAuth2 Mechanism = "xoauth2"
)

// Config is a server and how to speak with it.
type Config struct {
	// Host is the server's name or IP address. Required.
	Host string
	// Port defaults to 587 with StartTLS, 465 with TLS, and 25 with Clear.
	Port int
	// Security defaults to StartTLS.
	Security Security
	// TLSConfig is used for TLS; its ServerName defaults to Host. Defaults to the
	// system's certificates.
	TLSConfig *tls.Config

	// Username and Password authenticate. Defaults to no authentication.
	Username, Password string
	// Mechanism defaults to Plain.
	Mechanism Mechanism
	// Token returns an access token for each new connection, for XOAuth2, in place
	// of Password. Defaults to nil.
	Token func(ctx context.Context) (string, error)

	// Hello is the name of this machine in EHLO. Defaults to "localhost".
	Hello string
	// ConnectTimeout bounds connecting, with greeting, TLS and authentication.
	// Defaults to DefaultConnectTimeout.
	ConnectTimeout time.Duration
	// MaxConnections bounds connections. Defaults to DefaultMaxConnections; set it
	// to the number of lanes.
	MaxConnections int
	// MaxMails is how many mails a connection carries before it is closed.
	// Defaults to DefaultMaxMails.
	MaxMails int
	// IdleTimeout is after how long an unused connection is closed. Defaults to
	// DefaultIdleTimeout.
	IdleTimeout time.Duration
	// Dial opens connections. Defaults to a net.Dialer's DialContext.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Defaults.
const (
	DefaultConnectTimeout = 15 * time.Second
	DefaultMaxConnections = 10
	DefaultMaxMails       = 100
	// DefaultIdleTimeout is shorter than what servers are known to wait.
	DefaultIdleTimeout = 20 * time.Second
)

// Validate reports every problem at once, each beginning with the field's name.
func (c *Config) Validate() error {
	var errs []error
	problem := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Host == "" {
		problem("Host is missing")
	} else if strings.ContainsAny(c.Host, "/@ \t\r\n") || strings.Contains(c.Host, ":") && !isIP(c.Host) {
		problem("Host must be a name or an IP address, without a port")
	}
	if c.Port < 0 || c.Port > 65535 {
		problem("Port is outside of 1 to 65535")
	}
	switch c.Security {
	case "", StartTLS, TLS, Clear:
	default:
		problem("Security is none of starttls, tls, none")
	}
	switch c.Mechanism {
	case "", Plain, Login, CRAMMD5, XOAuth2:
	default:
		problem("Mechanism is none of plain, login, cram-md5, xoauth2")
	}
	switch secret := c.Password != "" || c.Token != nil; {
	case c.Username == "" && (secret || c.Mechanism != ""):
		problem("Username is missing beside a Password, a Token or a Mechanism")
	case c.Username != "" && !secret:
		problem("Password is missing beside a Username")
	case c.Token != nil && c.Mechanism != XOAuth2:
		problem("Token is for the mechanism xoauth2 only")
	case c.Token != nil && c.Password != "":
		problem("Token and Password can't both be set")
	}
	if c.Username != "" && c.Security == Clear && !isLoopback(c.Host) {
		problem("Security must be starttls or tls where there is a Username: it would be sent in the clear")
	}
	if strings.ContainsAny(c.Hello, " \t\r\n") {
		problem("Hello contains a space")
	}
	for _, n := range []struct {
		field string
		value int64
	}{
		{"ConnectTimeout", int64(c.ConnectTimeout)},
		{"MaxConnections", int64(c.MaxConnections)},
		{"MaxMails", int64(c.MaxMails)},
		{"IdleTimeout", int64(c.IdleTimeout)},
	} {
		if n.value < 0 {
			problem("%s is negative", n.field)
		}
	}
	return errors.Join(errs...)
}

func isIP(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

func orDefault[T comparable](value, otherwise T) T {
	var zero T
	if value == zero {
		return otherwise
	}
	return value
}

func (c Config) withDefaults() Config {
	c.Security = orDefault(c.Security, StartTLS)
	c.Port = orDefault(c.Port, map[Security]int{StartTLS: 587, TLS: 465, Clear: 25}[c.Security])
	c.Mechanism = orDefault(c.Mechanism, Plain)
	c.Hello = orDefault(c.Hello, "localhost")
	c.ConnectTimeout = orDefault(c.ConnectTimeout, DefaultConnectTimeout)
	c.MaxConnections = orDefault(c.MaxConnections, DefaultMaxConnections)
	c.MaxMails = orDefault(c.MaxMails, DefaultMaxMails)
	c.IdleTimeout = orDefault(c.IdleTimeout, DefaultIdleTimeout)
	if c.Dial == nil {
		c.Dial = new(net.Dialer).DialContext
	}
	if c.TLSConfig == nil {
		c.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if c.TLSConfig.ServerName == "" {
		c.TLSConfig = c.TLSConfig.Clone()
		c.TLSConfig.ServerName = c.Host
	}
	return c
}
