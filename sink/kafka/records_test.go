package kafka

import (
	"bytes"
	"strings"
	"testing"

	"github.com/segmentio/kafka-go/protocol"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/wire"
)

// The size that sets are bounded by is the one that is encoded, to the byte.
func FuzzSizeOfARecordSet(f *testing.F) {
	f.Add("key", 10, "x-header", "value", 3)
	f.Add("", 0, "", "", 1)
	f.Add(strings.Repeat("k", 64), 8191, "n", strings.Repeat("v", 128), 70)
	f.Add("k", 1<<20, "n", "v", 2)
	f.Fuzz(func(t *testing.T, key string, payload int, name, value string, n int) {
		n, payload = n&0xff, payload&0x1fffff
		if n == 0 || n*payload > 4<<20 {
			return
		}
		s, err := New(Config{Brokers: []string{"b:1"}, Topic: "t"})
		if err != nil {
			t.Fatal(err)
		}
		d := &delivery{s: s, leases: make([]core.Lease, n), results: make([]core.Result, n)}
		for i := range d.leases {
			d.leases[i] = lease("id", key)
			d.leases[i].Event.Payload = make([]byte, payload)
			d.leases[i].Event.Headers = map[string]string{name: value}
		}
		d.encode()
		q := &queue{topic: &topic{sizeLimit: sizeLimit{bytes: 64 << 20}}}
		for i := range d.items {
			q.items = append(q.items, i)
		}
		set, size := q.take(d)
		if len(set) == 0 {
			return // a header that the form refuses
		}
		var b bytes.Buffer
		rs := protocol.RecordSet{Version: 2, Records: &recordReader{d: d, items: set}}
		if _, err := rs.WriteTo(&b); err != nil {
			t.Fatal(err)
		}
		if got := b.Len() - 4; got != size { // the length of the set goes before it
			t.Errorf("%d events make a set of %d bytes, expected %d", len(set), got, size)
		}
	})
}

func TestNoPayloadIsATombstone(t *testing.T) {
	t.Parallel()
	d := &delivery{leases: []core.Lease{lease("1", "a"), lease("2", "a")}, items: []item{{lease: 0}, {lease: 1}}}
	d.leases[0].Event.Payload, d.leases[1].Event.Payload = nil, []byte{}
	r := &recordReader{d: d, items: []int{0, 1}}
	for i, null := range []bool{true, false} {
		rec, err := r.ReadRecord()
		if err != nil || (rec.Value == nil) != null {
			t.Errorf("record %d: null is %v (%v), want %v", i, rec.Value == nil, err, null)
		}
	}
}

// The memory of a call is used again by later ones, and must not hold on to
// what the call was about.
func TestNothingOfACallIsRemembered(t *testing.T) {
	t.Parallel()
	s := open(t, Config{Brokers: []string{"localhost:1"}})
	leases := []core.Lease{lease("1", "a"), lease("2", "b"), lease("3", "c")}
	leases[2].Event.Headers = map[string]string{"ce_x": "can't travel"} // noticed after the form's own headers
	d := &delivery{s: s, leases: leases, results: make([]core.Result, 3)}
	d.encode()
	d.fail(1, core.Result{Outcome: core.Refused})
	headers, items := d.headers, d.items
	s.keep(d)
	if cap(d.headers) == 0 {
		t.Error("the memory is not kept")
	}
	if d.leases != nil || d.results != nil || d.failed.before("b", 2) {
		t.Error("the call's leases are kept")
	}
	for _, h := range headers[:cap(headers)] {
		if h != (wire.Header{}) {
			t.Errorf("header %v is kept", h)
		}
	}
	for _, it := range items {
		if it != (item{}) {
			t.Errorf("item %v is kept", it)
		}
	}
}

// One event may have as many headers as fit in a document.
func TestMemoryThatIsKeptIsBounded(t *testing.T) {
	t.Parallel()
	s := open(t, Config{Brokers: []string{"localhost:1"}})
	d := &delivery{s: s, headers: make([]wire.Header, 3, maxSpareHeaders+1), spilt: true}
	s.keep(d)
	if n := cap(d.headers); n != 0 {
		t.Errorf("room for %d headers is kept", n)
	}
}
