package kafka

import (
	"bytes"
	"io"
	"math/bits"
	"strings"

	"github.com/segmentio/kafka-go/protocol"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/wire"
)

// setOverhead is the head of a record set.
const setOverhead = 61

// recordBody is the length of a record of this lease without the number that it
// has in its set, and without its own length.
func recordBody(l *core.Lease, headers []wire.Header) int {
	n := 1 + 1 + // attributes, time since the set's first record
		varLen(len(l.Event.AggregateID)) + len(l.Event.AggregateID) +
		varLen(len(l.Event.Payload)) + len(l.Event.Payload) +
		varLen(len(headers))
	for _, h := range headers {
		n += varLen(len(h.Name)) + len(h.Name) + varLen(len(h.Value)) + len(h.Value)
	}
	return n
}

// recordLen is what a record takes as the nth of its set, from 0.
func recordLen(body, nth int) int {
	body += varLen(nth)
	return varLen(body) + body
}

// varLen is the length of n as Kafka's signed number of variable length.
func varLen(n int) int { return (bits.Len64(uint64(n)<<1|1) + 6) / 7 }

// recordReader hands the records of one set to the encoder, one at a time and
// in the same memory. The encoder copies what it reads before the request is
// sent.
type recordReader struct {
	d       *delivery
	items   []int
	next    int
	rec     protocol.Record
	key     text
	value   body
	headers []protocol.Header
	scratch []byte
}

// text and body are the key and the value of a record.
type (
	text struct{ strings.Reader }
	body struct{ bytes.Reader }
)

func (*text) Close() error { return nil }
func (*body) Close() error { return nil }

func (r *recordReader) ReadRecord() (*protocol.Record, error) {
	if r.next == len(r.items) {
		return nil, io.EOF
	}
	it := &r.d.items[r.items[r.next]]
	r.next++
	ev := &r.d.leases[it.lease].Event
	r.key.Reset(ev.AggregateID)
	r.rec = protocol.Record{Key: &r.key}
	if ev.Payload != nil {
		r.value.Reset(ev.Payload)
		r.rec.Value = &r.value
	}
	r.headers, r.scratch = r.headers[:0], r.scratch[:0]
	for _, h := range r.d.headers[it.first:it.end] {
		start := len(r.scratch)
		r.scratch = append(r.scratch, h.Value...)
		r.headers = append(r.headers, protocol.Header{Key: h.Name, Value: r.scratch[start:len(r.scratch):len(r.scratch)]})
	}
	r.rec.Headers = r.headers
	return &r.rec, nil
}
