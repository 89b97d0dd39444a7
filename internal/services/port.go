package services

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"syscall"
)

// Ports are taken from below the range that the system gives to outgoing
// connections (32768 and up on Linux): a port from there can be taken while a
// killed server is down, even by a client that tries to reach that very server.
const (
	firstPort = 10000
	lastPort  = 31999
)

// port is a TCP port on 127.0.0.1, kept for a server also while that is down.
type port struct {
	number int
	// claim listens on the same port of 127.0.0.2, where nobody else does:
	// so processes that look for a free port see which ones are spoken for.
	claim net.Listener
}

// reservePort returns a free port; a wanted one, unless that is 0.
func reservePort(wanted int) (*port, error) {
	if wanted != 0 {
		if !free(wanted) {
			return nil, fmt.Errorf("reserving port %d: something listens there", wanted)
		}
		return &port{number: wanted}, nil
	}
	for range 1000 {
		number := firstPort + rand.IntN(lastPort-firstPort+1) //nolint:gosec // no secret
		claim, err := net.Listen("tcp", address("127.0.0.2", number))
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			claim = nil // a system where 127.0.0.2 is no loopback address
		}
		if free(number) {
			return &port{number: number, claim: claim}, nil
		}
		if claim != nil {
			_ = claim.Close()
		}
	}
	return nil, fmt.Errorf("reserving a port: none is free between %d and %d", firstPort, lastPort)
}

func (p *port) release() {
	if p.claim != nil {
		_ = p.claim.Close()
	}
}

func (p *port) address() string { return address("127.0.0.1", p.number) }

func address(host string, number int) string {
	return net.JoinHostPort(host, strconv.Itoa(number))
}

func free(number int) bool {
	listener, err := net.Listen("tcp", address("127.0.0.1", number))
	if err != nil {
		return false
	}
	return listener.Close() == nil
}
