package amqp

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/gooutbox/outbox/sink/sinktest"
)

// method is a method of AMQP, by its class and its own number.
type method struct{ class, number uint16 }

// breaker stands between a sink and a broker, reads the frames that pass, and
// ends all connections at the one that it is told.
type breaker struct {
	listener net.Listener
	target   string

	mu      sync.Mutex
	conns   map[net.Conn]struct{}
	armed   bool
	struck  bool
	when    sinktest.When
	ask     method // of the client
	answer  method // of the broker
	waiting bool   // the question has passed, its answer must not
}

func newBreaker(t testing.TB, target string) *breaker {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &breaker{listener: listener, target: target, conns: map[net.Conn]struct{}{}}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
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
		b.cut()
		all.Wait()
	})
	return b
}

func (b *breaker) cut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.conns {
		_ = c.Close()
	}
	clear(b.conns)
}

// pass brings frames from one side to the other.
func (b *breaker) pass(to, from net.Conn, asking bool) {
	defer func() { _, _ = to.Close(), from.Close() }()
	in := bufio.NewReader(from)
	if asking { // the protocol header
		if _, err := io.CopyN(to, in, 8); err != nil {
			return
		}
	}
	for {
		head, err := in.Peek(7)
		if err != nil {
			return
		}
		frame := make([]byte, 7+binary.BigEndian.Uint32(head[3:])+1)
		if _, err := io.ReadFull(in, frame); err != nil {
			return
		}
		part := b.let(frame, asking)
		if _, err := to.Write(frame[:part]); err != nil {
			return
		}
		if part < len(frame) {
			b.cut()
			return
		}
	}
}

// let returns how much of a frame may pass.
func (b *breaker) let(frame []byte, asking bool) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.armed || frame[0] != 1 { // 1 is a frame with a method
		return len(frame)
	}
	m := method{binary.BigEndian.Uint16(frame[7:]), binary.BigEndian.Uint16(frame[9:])}
	switch {
	case asking && m == b.ask && b.when == sinktest.After:
		b.waiting = true
		return len(frame)
	case asking && m == b.ask, !asking && b.waiting && m == b.answer:
		b.armed, b.struck = false, true
		if b.when == sinktest.During {
			return len(frame) / 2
		}
		return 0
	}
	return len(frame)
}

// arm breaks the next exchange of this kind.
func (b *breaker) arm(when sinktest.When, ask, answer method) (struck func() bool) {
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
