package servicetest

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"
)

// Proxy stands between a program and a server and makes the network between
// them bad. It passes everything on until it is told otherwise. Its methods may
// be called by several goroutines at once.
type Proxy struct {
	listener net.Listener
	done     chan struct{} // closed at the end

	mu      sync.Mutex
	target  string
	links   map[*link]struct{}
	stalled chan struct{} // closed by Resume; nil while data passes
	delay   time.Duration
	// left is how many bytes may still pass before a cut, by direction; 0 is
	// any number.
	left    [2]int
	cuts    int
	waiting int
}

// Direction is that in which bytes go through a Proxy.
type Direction int

// The directions.
const (
	ToServer Direction = iota
	ToClient
)

// link is one connection through the proxy.
type link struct{ client, server net.Conn }

// NewProxy starts a proxy before the server at this address, which is gone when
// the test ends. An empty target can be named later, by To.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("starting a proxy: %v", err)
	}
	p := &Proxy{listener: listener, done: make(chan struct{}), target: target, links: map[*link]struct{}{}}
	var all sync.WaitGroup
	all.Go(func() { p.accept(&all) })
	t.Cleanup(func() {
		close(p.done)
		_ = listener.Close()
		p.Cut()
		all.Wait()
	})
	return p
}

// Address is where programs connect to instead of the server.
func (p *Proxy) Address() string { return p.listener.Addr().String() }

// To makes later connections lead to this address.
func (p *Proxy) To(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// Cut ends all connections. New ones pass.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cutAll()
}

// CutAfter ends all connections as soon as so many more bytes have gone in one
// direction, in the middle of whatever is under way then.
func (p *Proxy) CutAfter(bytes int, to Direction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left[to] = max(bytes, 1)
}

// Cuts is how often CutAfter has struck.
func (p *Proxy) Cuts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cuts
}

// Stall lets nothing pass, as a network that swallows everything: connections
// stay open, and new ones can be opened. What was sent meanwhile arrives after
// Resume.
func (p *Proxy) Stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stalled == nil {
		p.stalled = make(chan struct{})
	}
}

// Resume ends what Stall began.
func (p *Proxy) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stalled != nil {
		close(p.stalled)
		p.stalled = nil
	}
}

// Waiting is how many connections have sent something that Stall holds back.
func (p *Proxy) Waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waiting
}

// Delay makes everything arrive so much later. 0 ends it.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

func (p *Proxy) cutAll() {
	for l := range p.links {
		_, _ = l.client.Close(), l.server.Close()
	}
	clear(p.links)
}

func (p *Proxy) accept(all *sync.WaitGroup) {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		all.Go(func() { p.connect(client, all) })
	}
}

func (p *Proxy) connect(client net.Conn, all *sync.WaitGroup) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	server, err := new(net.Dialer).DialContext(ctx, "tcp", target)
	if err != nil {
		_ = client.Close() // as a server that is away does it, a little later
		return
	}
	l := &link{client, server}
	p.mu.Lock()
	p.links[l] = struct{}{}
	p.mu.Unlock()
	select {
	case <-p.done:
		p.Cut()
	default:
	}
	all.Go(func() { p.pass(l, server, client, ToServer) })
	all.Go(func() { p.pass(l, client, server, ToClient) })
}

// pass brings what comes from one side to the other until either is closed.
func (p *Proxy) pass(l *link, to, from net.Conn, direction Direction) {
	defer p.end(l)
	buffer := make([]byte, 256<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 && !p.deliver(to, buffer[:n], direction) {
			return
		}
		if err != nil {
			return
		}
	}
}

// deliver writes data when the network lets it through.
func (p *Proxy) deliver(to net.Conn, data []byte, direction Direction) bool {
	delay, ok := p.open()
	if !ok || delay > 0 && !p.wait(delay) {
		return false
	}
	data, cut := p.share(data, direction)
	_, err := to.Write(data)
	if cut {
		p.Cut()
	}
	return err == nil && !cut
}

// open waits while the network is stalled.
func (p *Proxy) open() (delay time.Duration, ok bool) {
	for {
		p.mu.Lock()
		stalled, delay := p.stalled, p.delay
		if stalled != nil {
			p.waiting++
		}
		p.mu.Unlock()
		if stalled == nil {
			return delay, true
		}
		resumed := p.resumed(stalled)
		p.mu.Lock()
		p.waiting--
		p.mu.Unlock()
		if !resumed {
			return 0, false
		}
	}
}

// resumed waits until data may pass, and tells whether it may.
func (p *Proxy) resumed(stalled chan struct{}) bool {
	select {
	case <-stalled:
		return true
	case <-p.done:
		return false
	}
}

// share is what of data may pass before a cut.
func (p *Proxy) share(data []byte, direction Direction) (passes []byte, cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	left := p.left[direction]
	switch {
	case left == 0:
		return data, false
	case left > len(data):
		p.left[direction] = left - len(data)
		return data, false
	}
	p.left[direction] = 0
	p.cuts++
	return data[:left-1], true
}

func (p *Proxy) wait(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-p.done:
		return false
	}
}

// end closes both sides of a link.
func (p *Proxy) end(l *link) {
	_, _ = l.client.Close(), l.server.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}
