package config

import (
	"errors"
	"net"
	"strconv"
)

// checkListen refuses addresses that other machines reach, unless they are
// allowed: metrics name topics, routes and keys' counts, and need no password.
func (a Admin) checkListen() error {
	if a.Listen == "" {
		return nil
	}
	host, port, err := net.SplitHostPort(a.Listen)
	if err != nil {
		return errors.New("must be host:port, such as 127.0.0.1:9090")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n > 65535 {
		return errors.New("the port must be a number from 0 to 65535")
	}
	if a.AllowRemote || host == "localhost" {
		return nil
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return errors.New("is reachable from other machines: use 127.0.0.1, or set admin.allow_remote to true")
	}
	return nil
}
