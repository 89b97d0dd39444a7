package relay

import "sync"

// bells tell those who wait for jobs that some may have become due.
type bells struct {
	mu      sync.Mutex
	waiting map[*bell]struct{}
}

// bell is one who waits. A ring that nobody has heard yet is one ring however
// often it was rung.
type bell struct {
	rung chan struct{}
	sink string
}

// hang adds one who waits for jobs of a sink; take it down again.
func (b *bells) hang(sink string) *bell {
	b.mu.Lock()
	defer b.mu.Unlock()
	one := &bell{rung: make(chan struct{}, 1), sink: sink}
	if b.waiting == nil {
		b.waiting = map[*bell]struct{}{}
	}
	b.waiting[one] = struct{}{}
	return one
}

func (b *bells) takeDown(one *bell) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.waiting, one)
}

// ring wakes those who wait for jobs of the sink; "" is any sink.
func (b *bells) ring(sink string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for one := range b.waiting {
		if sink != "" && sink != one.sink {
			continue
		}
		select {
		case one.rung <- struct{}{}:
		default: // it will look anyway
		}
	}
}
