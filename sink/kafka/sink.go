package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/sasl"

	"github.com/gooutbox/outbox/core"
	"github.com/gooutbox/outbox/internal/calls"
	"github.com/gooutbox/outbox/internal/naming"
	"github.com/gooutbox/outbox/internal/wire"
)

// ErrClosed is the reason of what Deliver answers after Close.
var ErrClosed = errors.New("the Kafka sink is closed")

// Sink delivers to one Kafka cluster. Make it with New. Its methods may be
// called by several goroutines at once.
type Sink struct {
	cfg         Config
	acks        int16
	compression protocol.Attributes
	topics      *naming.Template
	encoder     *wire.Encoder
	cluster     *cluster
	// spare holds the memory of calls that have ended.
	spare sync.Pool

	calls *calls.Calls
}

var (
	_ core.Sink      = (*Sink)(nil)
	_ core.Describer = (*Sink)(nil)
	_ core.Checker   = (*Sink)(nil)
)

var compressions = map[Compression]protocol.Attributes{
	CompressionNone:   0,
	CompressionGzip:   protocol.Gzip,
	CompressionSnappy: protocol.Snappy,
	CompressionLZ4:    protocol.Lz4,
	CompressionZstd:   protocol.Zstd,
}

// New makes a sink. It doesn't connect: use Check for that. The error tells
// every problem of the configuration.
func New(cfg Config) (*Sink, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configuring the Kafka sink: %w", err)
	}
	cfg = cfg.withDefaults()
	names, err := newTopics(cfg.Topic)
	if err != nil {
		return nil, fmt.Errorf("configuring the Kafka sink: %w", err)
	}
	var mechanism sasl.Mechanism
	if cfg.SASL != nil {
		if mechanism, err = cfg.SASL.mechanism(); err != nil {
			return nil, fmt.Errorf("configuring the Kafka sink: %w", err)
		}
	}
	s := &Sink{
		cfg: cfg, acks: -1, compression: compressions[cfg.Compression], topics: names,
		encoder: wire.NewEncoder(cfg.Form, wire.KafkaPrefix, cfg.Source),
		cluster: newCluster(&cfg, &dialer{tls: cfg.TLS, sasl: mechanism, clientID: cfg.ClientID, largest: largestRequest}),
		calls:   calls.New(),
	}
	if cfg.Acks == AcksLeader {
		s.acks = 1
	}
	return s, nil
}

// Capabilities declares PrefixPerKey.
func (s *Sink) Capabilities() core.Capabilities {
	return core.Capabilities{PrefixPerKey: true, MaxEventBytes: s.cfg.MaxMessageBytes}
}

// Deliver sends the events, see the package's promise. A delivered event's
// receipt is topic-partition@offset.
//
// Outcomes: Rejected when the event makes no valid topic or headers, when it is
// too large for its topic, where that limit may be read, or for a request of 100
// MiB, which is what brokers read by default, or when the broker refuses the
// record by itself. Refused when
// its topic doesn't exist or gives no right. Unavailable when no broker can be
// reached or authenticates us, and while a partition has no leader or too few
// replicas; the next call asks for the leaders anew. Throttled when the broker
// asked for a pause. Unknown when the request was sent and no answer came, or
// when the broker answered that it doesn't know (codes 7, 20 and -1).
func (s *Sink) Deliver(ctx context.Context, leases []core.Lease) []core.Result {
	results := make([]core.Result, len(leases))
	if len(leases) == 0 {
		return results
	}
	ctx, done, ok := s.calls.Begin(ctx)
	if !ok {
		for i := range results {
			results[i] = core.Result{Outcome: core.Unavailable, Err: ErrClosed}
		}
		return results
	}
	defer done()
	d, _ := s.spare.Get().(*delivery)
	if d == nil {
		d = &delivery{s: s}
	}
	d.leases, d.results = leases, results
	d.run(ctx, d.plan(ctx))
	d.finish()
	s.keep(d)
	return results
}

// maxSpareHeaders bounds what keep saves, at 32 bytes each: one event may have
// any number.
const maxSpareHeaders = 1 << 18

// keep saves the memory of a call, without what it was filled with.
func (s *Sink) keep(d *delivery) {
	if cap(d.headers) > maxSpareHeaders {
		d.headers = nil
	}
	if d.spilt {
		d.headers = d.headers[:cap(d.headers)]
	}
	clear(d.headers)
	clear(d.items)
	*d = delivery{s: s, headers: d.headers[:0], items: d.items[:0]}
	s.spare.Put(d)
}

// Check connects and authenticates, and, where the topic is the same for all
// events, makes sure that it exists and may be written to. With CreateTopics it
// asks for the topic.
func (s *Sink) Check(ctx context.Context) error {
	ctx, done, ok := s.calls.Begin(ctx)
	if !ok {
		return ErrClosed
	}
	defer done()
	names := []string{}
	if fixed := s.topics.Fixed(); fixed != "" {
		names = append(names, fixed)
	}
	return s.cluster.check(ctx, names)
}

// Close cuts off the calls that are under way, which then answer truthfully,
// waits for them, and closes all connections. Its error is that of ctx, if that
// ended first; the calls end all the same.
func (s *Sink) Close(ctx context.Context) error {
	if err := s.calls.Close(ctx, s.cluster.close); err != nil {
		return fmt.Errorf("closing the Kafka sink: %w", err)
	}
	return nil
}
