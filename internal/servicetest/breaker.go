package servicetest

import (
	"bufio"
	"context"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/gooutbox/outbox/sink/sinktest"
)

// Framing tells where the frames of a protocol begin and end.
type Framing struct {
	// Preface is how many bytes a client sends before its first frame.
	Preface int
	// Head is how many bytes of a frame tell its size.
	Head int
	// Size is that of a whole frame, from its head.
	Size func(head []byte) int
}

// Breaker stands between a client and a server, reads the frames that pass, and
// ends all connections at the one that it is told.
type Breaker struct {
	listener net.Listener
	framing  Framing

	mu      sync.Mutex
	target  string
	conns   map[net.Conn]struct{}
	armed   bool
	struck  bool
	when    sinktest.When
	ask     func(frame []byte) bool // of the client
	answer  func(frame []byte) bool // of the server
	waiting bool                    // the question has passed, its answer must not
}

// NewBreaker starts a breaker that is gone when the test ends. It leads nowhere
// before To is called.
func NewBreaker(t testing.TB, framing Framing) *Breaker {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &Breaker{listener: listener, framing: framing, conns: map[net.Conn]struct{}{}}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			b.mu.Lock()
			target := b.target
			b.mu.Unlock()
			server, err := new(net.Dialer).DialContext(context.Background(), "tcp", target)
			if err != nil {
				_ = client.Close()
				continue
			}
			b.mu.Lock()
			b.conns[client], b.conns[server] = struct{}{}, struct{}{}
			b.mu.Unlock()
			all.Go(func() { b.pass(server, client, true) })
			all.Go(func() { b.pass(client, server, false) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		b.Cut()
		all.Wait()
	})
	return b
}

// Address is where clients connect to.
func (b *Breaker) Address() string { return b.listener.Addr().String() }

// To sets the server's address, for connections from now on.
func (b *Breaker) To(target string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.target = target
}

// Cut ends all connections.
func (b *Breaker) Cut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.conns {
		_ = c.Close()
	}
	clear(b.conns)
}

// Arm breaks the next exchange whose question ask knows: at the question, or
// where when is After at the frame of the server that answer knows. struck tells
// whether it came to that, and disarms.
func (b *Breaker) Arm(when sinktest.When, ask, answer func(frame []byte) bool) (struck func() bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.armed, b.struck, b.waiting, b.when, b.ask, b.answer = true, false, false, when, ask, answer
	return func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.armed = false
		return b.struck
	}
}

// pass brings frames from one side to the other.
func (b *Breaker) pass(to, from net.Conn, asking bool) {
	defer func() { _, _ = to.Close(), from.Close() }()
	in := bufio.NewReader(from)
	if asking {
		if _, err := io.CopyN(to, in, int64(b.framing.Preface)); err != nil {
			return
		}
	}
	for {
		head, err := in.Peek(b.framing.Head)
		if err != nil {
			return
		}
		frame := make([]byte, b.framing.Size(head))
		if _, err := io.ReadFull(in, frame); err != nil {
			return
		}
		part := b.let(frame, asking)
		if _, err := to.Write(frame[:part]); err != nil {
			return
		}
		if part < len(frame) {
			b.Cut()
			return
		}
	}
}

// let returns how much of a frame may pass.
func (b *Breaker) let(frame []byte, asking bool) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.armed {
		return len(frame)
	}
	asks := asking && b.ask(frame)
	switch {
	case asks && b.when == sinktest.After:
		b.waiting = true
	case asks, !asking && b.waiting && b.answer(frame):
		b.armed, b.struck = false, true
		if b.when == sinktest.During {
			return len(frame) / 2
		}
		return 0
	}
	return len(frame)
}
