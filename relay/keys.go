package relay

import (
	"container/heap"
	"time"
)

// key holds the entries of one AggregateID that are not settled, in order.
// Exactly one of these holds: it is in the ready list, in a call, in the heap
// of waiting keys, its former head is being set aside, or it has no entries
// because it has a line.
type key struct {
	name       string
	head, tail uint64 // entries of the window
	count      int32  // of entries from head to tail; a key fits 64 bytes, a line of the CPU's cache
	inCall     bool
	parking    bool // its former head is being set aside: the key goes on after
	next       *key // in the ready list
	wait       *wait
	line       *line // not nil while its events go through the queue
}

// wait is what a key needs after a failure, until its next success.
type wait struct {
	waits  waits
	until  time.Time
	reason error
	place  int // in the heap, -1 when it isn't there
}

// keys holds all keys of a term.
type keys struct {
	byName  map[string]*key
	ready   keyList
	waiting keyHeap
	spare   *key // emptied ones, linked by next
}

// add puts entry i at the end of the named key's and returns the key.
func (ks *keys) add(w *window, name string, i uint64) *key {
	k := ks.named(name)
	w.at(i).key = k
	k.count++
	if k.count > 1 {
		w.at(k.tail).next = i
		k.tail = i
		return k
	}
	k.head, k.tail = i, i
	if !k.inCall && !k.parking && k.line == nil && (k.wait == nil || k.wait.place < 0) {
		ks.ready.pushBack(k)
	}
	return k
}

// named returns the key of this name, which is made when it isn't there.
func (ks *keys) named(name string) *key {
	k := ks.byName[name]
	if k == nil {
		k = ks.make(name)
		ks.byName[name] = k
	}
	return k
}

func (ks *keys) make(name string) *key {
	k := ks.spare
	if k == nil {
		return &key{name: name}
	}
	ks.spare = k.next
	*k = key{name: name}
	return k
}

// resume lets a key go on that is in no call, if it has more entries.
func (ks *keys) resume(k *key) {
	if k.count > 0 {
		ks.ready.pushBack(k)
		return
	}
	ks.forget(k)
}

// forget drops a key without entries.
func (ks *keys) forget(k *key) {
	delete(ks.byName, k.name)
	*k = key{next: ks.spare}
	ks.spare = k
}

// takeOut takes a key out of the ready or the waiting ones, if it is there.
func (ks *keys) takeOut(k *key) {
	switch {
	case k.inCall || k.parking || k.count == 0:
	case k.wait != nil && k.wait.place >= 0:
		heap.Remove(&ks.waiting, k.wait.place)
	default:
		ks.ready.remove(k)
	}
}

// postpone lets a key wait until a time.
func (ks *keys) postpone(k *key, until time.Time) {
	k.wait.until = until
	heap.Push(&ks.waiting, k)
}

// hasten lets a waiting key wait no longer than until a time.
func (ks *keys) hasten(k *key, until time.Time) {
	if k.wait.until.After(until) {
		k.wait.until = until
		heap.Fix(&ks.waiting, k.wait.place)
	}
}

// due makes the keys ready whose wait is over.
func (ks *keys) due(now time.Time) {
	for len(ks.waiting) > 0 && !ks.waiting[0].wait.until.After(now) {
		ks.ready.pushFront(heap.Pop(&ks.waiting).(*key))
	}
}

// keyList is a queue linked by key.next.
type keyList struct {
	front, back *key
}

func (l *keyList) empty() bool { return l.front == nil }

func (l *keyList) pushBack(k *key) {
	k.next = nil
	if l.back == nil {
		l.front = k
	} else {
		l.back.next = k
	}
	l.back = k
}

func (l *keyList) pushFront(k *key) {
	k.next = l.front
	l.front = k
	if l.back == nil {
		l.back = k
	}
}

func (l *keyList) popFront() {
	k := l.front
	l.front = k.next
	if l.front == nil {
		l.back = nil
	}
	k.next = nil
}

// remove takes a key out, wherever it is.
func (l *keyList) remove(k *key) {
	if l.front == k {
		l.popFront()
		return
	}
	for before := l.front; before != nil; before = before.next {
		if before.next != k {
			continue
		}
		before.next = k.next
		if l.back == k {
			l.back = before
		}
		k.next = nil
		return
	}
}

// keyHeap has the key that is due first on top.
type keyHeap []*key

func (h keyHeap) Len() int           { return len(h) }
func (h keyHeap) Less(i, j int) bool { return h[i].wait.until.Before(h[j].wait.until) }
func (h keyHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].wait.place, h[j].wait.place = i, j
}

func (h *keyHeap) Push(x any) {
	k := x.(*key)
	k.wait.place = len(*h)
	*h = append(*h, k)
}

func (h *keyHeap) Pop() any {
	old := *h
	k := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	k.wait.place = -1
	return k
}
